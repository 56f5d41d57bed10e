/* SPDX-License-Identifier: Apache-2.0 */
/* One line for each protocol file. */
#ifndef VB_CC_PROTOCOLS_H
#define VB_CC_PROTOCOLS_H

#include "txn/protocol.h"

extern const struct vb_cc_ops vb_cc_no_wait, vb_cc_no_wait_sx;
extern const struct vb_cc_ops vb_cc_wait_die, vb_cc_wait_die_sx, vb_cc_wait_die_fair;
extern const struct vb_cc_ops vb_cc_bounded_wait, vb_cc_bounded_wait_sx;
extern const struct vb_cc_ops vb_cc_votes, vb_cc_votes_as_published;
extern const struct vb_cc_ops vb_cc_wound_wait, vb_cc_wound_wait_sx, vb_cc_wound_wait_as_published;
extern const struct vb_cc_ops vb_cc_dslr_2pl;
extern const struct vb_cc_ops vb_cc_silo, vb_cc_silo_as_published, vb_cc_drtm_h;
extern const struct vb_cc_ops vb_cc_mocc;
extern const struct vb_cc_ops vb_cc_sundial, vb_cc_sundial_as_published;
extern const struct vb_cc_ops vb_cc_maat, vb_cc_maat_as_published;
extern const struct vb_cc_ops vb_cc_mvcc, vb_cc_mvcc_as_published, vb_cc_mvcc_rcc;
extern const struct vb_cc_ops vb_cc_cicada, vb_cc_cicada_as_published;
extern const struct vb_cc_ops vb_cc_to, vb_cc_to_as_published;
extern const struct vb_cc_ops vb_cc_calvin;
extern const struct vb_cc_ops vb_cc_to_cascade, vb_cc_to_cascade_as_published;

#endif
