/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Trust: the key file, and what is made of it.
 *
 * The key is the SHA-256 of the file's bytes under a label (without a file: of nothing), or drawn for
 * processes that are forked (vb_cluster_key_make).  How root and member prove to each other that they have
 * it is in proof.c.
 */
#ifndef VB_CLUSTER_AUTH_H
#define VB_CLUSTER_AUTH_H

#include "cluster/cluster.h"
#include "cluster/wire.h"
#include "seal/seal.h"

#define AUTH_FILE_MIN 32
#define AUTH_FILE_MAX 4096

/* path NULL: no key.  -EACCES (said): the file is missing, another user's, others can read it, it is too
 * short, or all its bytes are the same. */
int auth_key_load(struct vb_cluster_key *key, const char *path);
void auth_key_of(struct vb_cluster_key *key, const void *data, size_t bytes);
void auth_forget(void *secret, size_t bytes);
/* Fresh random bytes, and a number below n. */
void auth_draw(void *to, size_t bytes);
uint32_t auth_draw_below(uint32_t n);

/* Made of a secret for a purpose, as vb_cluster_number says. */
uint64_t auth_number(const uint8_t secret[CL_SECRET], const char purpose[8]);

/* What handshakes are made with. */
void auth_psk(const struct vb_cluster_key *key, uint8_t psk[VB_SEAL_KEY]);

#endif
