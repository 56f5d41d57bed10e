/* SPDX-License-Identifier: Apache-2.0 */
/* In place of auth.c where the library is built without libsodium: no key is had, so no cluster is opened, and
 * what comes after that in one is never called. */
#define VB_LOG_ROOM "cluster"
#include "cluster/auth.h"

#include <errno.h>

#include "base/log.h"

int auth_key_load(struct vb_cluster_key *key, const char *path)
{
	return vb_fail(-EOPNOTSUPP,
		       "this library was built without libsodium and OpenSSL (meson's option "
		       "'sodium'), and processes of a cluster prove who they are with them");
}

int vb_cluster_key_make(struct vb_cluster_key *key, const char *path)
{
	return auth_key_load(key, path);
}

/* Nobody has drawn or loaded anything. */
void auth_forget(void *secret, size_t bytes)
{
}

void auth_draw(void *to, size_t bytes)
{
	vb_assert(!"without libsodium");
}

uint32_t auth_draw_below(uint32_t n)
{
	vb_assert(!"without libsodium");
	return 0;
}

uint64_t auth_number(const uint8_t secret[CL_SECRET], const char purpose[8])
{
	vb_assert(!"without libsodium");
	return 0;
}

void auth_psk(const struct vb_cluster_key *key, uint8_t psk[VB_SEAL_KEY])
{
	vb_assert(!"without libsodium");
}
