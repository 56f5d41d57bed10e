/* SPDX-License-Identifier: Apache-2.0 */
/* In place of shake.c and seal.c where the library is built without libsodium and OpenSSL: nobody has a key there
 * (cluster/auth_none.c), so nothing of this is ever called. */
#include "base/log.h"
#include "seal/seal.h"

const char *const vb_seal_mode_names[VB_SEAL_MODES] = {[VB_SEAL_PLAIN] = "plain"};

bool vb_seal_has_aes(void)
{
	return false;
}

void vb_seal_free(struct vb_seal *s)
{
}

size_t vb_seal_put(struct vb_seal *s, uint8_t *to, const uint8_t *plain, size_t bytes)
{
	vb_assert(!"without libsodium");
	return 0;
}

int vb_seal_get(struct vb_seal *s, struct vb_buf *from, struct vb_buf *to)
{
	vb_assert(!"without libsodium");
	return 0;
}

struct ssl_ctx_st *vb_shake_context(void)
{
	return NULL;
}

void vb_shake_context_free(struct ssl_ctx_st *context)
{
}

struct vb_shake *vb_shake_new(struct ssl_ctx_st *context, const uint8_t *psk, bool called,
			      const struct vb_shake_who *who, void *arg)
{
	return NULL;
}

void vb_shake_free(struct vb_shake *s)
{
}

int vb_shake_step(struct vb_shake *s, struct vb_buf *in, struct vb_buf *out, const char **why)
{
	vb_assert(!"without OpenSSL");
	return 0;
}

bool vb_shake_export(struct vb_shake *s, const char *label, uint8_t *to, size_t bytes)
{
	return false;
}

struct vb_seal *vb_shake_seal(struct vb_shake *s, const char *label, enum vb_seal_mode mode)
{
	return NULL;
}
