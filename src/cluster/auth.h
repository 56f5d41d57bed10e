/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Trust: the key file, and how root and member prove to each other that they have it.
 *
 * The key is the SHA-256 of the file's bytes under a label (without a file: of nothing), or drawn for
 * processes that are forked (vb_cluster_key_make).  A proof
 * is an HMAC-SHA-256 of who proves (root or member) and of all that was said before, which includes
 * a fresh challenge of each side: a proof is good for one connection, one direction and one key.
 * The member proves first, so that a stranger who knocks gets nothing that was made with the key.
 */
#ifndef VB_CLUSTER_AUTH_H
#define VB_CLUSTER_AUTH_H

#include "cluster/cluster.h"
#include "cluster/wire.h"

#define AUTH_FILE_MIN 32
#define AUTH_FILE_MAX 4096

enum auth_purpose {
	AUTH_MEMBER, /* the member's proof */
	AUTH_ROOT,   /* the root's */
	AUTH_SECRET, /* what the run's secret is masked with */
};

/* What both sides have said when proofs are made: HELLO's payload, then CHALLENGE's. */
struct auth_transcript {
	uint8_t hello[CL_HELLO_SIZE];
	uint8_t challenge[CL_NONCE];
};

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

void auth_mac(const struct vb_cluster_key *key, enum auth_purpose purpose,
	      const struct auth_transcript *t, uint8_t out[CL_MAC]);
/* In constant time. */
bool auth_mac_is(const struct vb_cluster_key *key, enum auth_purpose purpose,
		 const struct auth_transcript *t, const uint8_t *mac, size_t bytes);
/* Puts the mask on, or takes it off. */
void auth_mask(const struct vb_cluster_key *key, const struct auth_transcript *t,
	       uint8_t secret[CL_SECRET]);

#endif
