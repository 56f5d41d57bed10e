/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DrTM+H, as RCBench has it (section 6.7): OCC as in Silo, in which "the remote accesses in the
 * validation phase and the commit phase are all implemented using two-sided verbs".  Words, stages
 * and promises are silo's; this is a name for one of its hybrid codes.
 *
 *	read       one-sided: READ
 *	lock       by RPC     RCBench's validation phase: the write set is locked, and
 *	validate   by RPC     what was only read is looked at
 *	commit     by RPC     its commit/abort phase: the record and the unlock,
 *	release    by RPC     or only the unlock
 *
 * Departs from the paper as silo does.  Each server is asked once for all of its records of a
 * stage, and the log is in the coordinator's own memory: DrTM+H writes it to backups, one-sided.
 */
#include "cc/silo.h"

static const struct vb_stage_ops stages[] = SILO_STAGE_TABLE(silo_read, silo_lock, silo_validate);

const struct vb_cc_ops vb_cc_drtm_h = {
	.name = "drtm-h",
	.summary = "silo that reads one-sided, and validates and commits by RPC",
	.source = "RCBench section 6.7 (Wei and others 2018)",
	.caps = VB_CC_STRICT | VB_CC_NEVER_WAITS,
	.code = "01111",
	.code_of = "silo",
	SILO_OPS(stages),
	.prepare = silo_prepare,
};
