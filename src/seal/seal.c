/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sealed records.
 *
 *	u32 n, little-endian     n bytes: what is sealed, and 16 of its tag
 *
 * AEAD with the length as additional data and a counter as nonce: each way has its own key, and each key
 * its own counter, from 0.  So what was changed, dropped, repeated, reordered or sent by somebody else
 * does not open, and the connection ends.  AES-256-GCM where both ends' CPUs have it, else
 * ChaCha20-Poly1305 (both of libsodium).
 *
 * A key's life is SEALS records: then each end replaces it by a hash of it, and the counter begins anew.
 * So the limits of AES-GCM are far, and who learns a key does not learn what was sealed before it.
 */
#define VB_LOG_ROOM "seal"
#include <endian.h>
#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "seal/seal.h"

#define SEALS (1u << 20)
#define TAG   16u

const char *const vb_seal_mode_names[VB_SEAL_MODES] = {[VB_SEAL_PLAIN] = "plain",
						       [VB_SEAL_AES] = "aes256gcm",
						       [VB_SEAL_CHACHA] = "chacha20poly1305"};

static const uint8_t next_label[] = "verbena tcp: the next key";

struct way {
	crypto_aead_aes256gcm_state aes; /* made of key */
	uint8_t key[VB_SEAL_KEY];
	uint64_t counter;
};

struct vb_seal {
	struct way out, in;
	enum vb_seal_mode mode;
};

_Static_assert(crypto_aead_aes256gcm_ABYTES == TAG &&
		       crypto_aead_chacha20poly1305_ietf_ABYTES == TAG,
	       "tags are of one size");
_Static_assert(crypto_aead_aes256gcm_NPUBBYTES == 12 &&
		       crypto_aead_chacha20poly1305_ietf_NPUBBYTES == 12,
	       "nonces are of one size");
_Static_assert(4 + TAG == VB_SEAL_MORE, "what a record has besides");

bool vb_seal_has_aes(void)
{
	return crypto_aead_aes256gcm_is_available();
}

static void way_key(struct way *w, enum vb_seal_mode mode)
{
	w->counter = 0;
	if (mode == VB_SEAL_AES)
		(void)crypto_aead_aes256gcm_beforenm(&w->aes, w->key);
}

static void nonce_next(struct way *w, enum vb_seal_mode mode, uint8_t nonce[12])
{
	uint8_t next[VB_SEAL_KEY];
	uint64_t n;

	if (w->counter == SEALS) {
		(void)crypto_generichash(next, sizeof(next), next_label, sizeof(next_label), w->key,
					 sizeof(w->key));
		memcpy(w->key, next, sizeof(next));
		sodium_memzero(next, sizeof(next));
		way_key(w, mode);
	}
	n = htole64(w->counter++);
	memset(nonce, 0, 12);
	memcpy(nonce, &n, sizeof(n));
}

struct vb_seal *vb_seal_new(enum vb_seal_mode mode, const uint8_t *sending,
			    const uint8_t *receiving)
{
	/* libsodium wants its state so. */
	struct vb_seal *s = aligned_alloc(64, (sizeof(*s) + 63) & ~(size_t)63);

	if (s == NULL)
		return NULL;
	memset(s, 0, sizeof(*s));
	s->mode = mode;
	memcpy(s->out.key, sending, VB_SEAL_KEY);
	memcpy(s->in.key, receiving, VB_SEAL_KEY);
	way_key(&s->out, mode);
	way_key(&s->in, mode);
	return s;
}

void vb_seal_free(struct vb_seal *s)
{
	if (s == NULL)
		return;
	sodium_memzero(s, sizeof(*s));
	free(s);
}

size_t vb_seal_put(struct vb_seal *s, uint8_t *to, const uint8_t *plain, size_t bytes)
{
	uint32_t n = htole32((uint32_t)(bytes + TAG));
	uint8_t nonce[12];

	vb_assert(bytes > 0 && bytes <= VB_SEAL_MAX);
	nonce_next(&s->out, s->mode, nonce);
	memcpy(to, &n, sizeof(n));
	if (s->mode == VB_SEAL_AES)
		(void)crypto_aead_aes256gcm_encrypt_afternm(to + 4, NULL, plain, bytes, to, 4, NULL,
							    nonce, &s->out.aes);
	else
		(void)crypto_aead_chacha20poly1305_ietf_encrypt(to + 4, NULL, plain, bytes, to, 4,
								NULL, nonce, s->out.key);
	return bytes + VB_SEAL_MORE;
}

int vb_seal_get(struct vb_seal *s, struct vb_buf *from, struct vb_buf *to)
{
	size_t have = vb_buf_bytes(from), bytes;
	const uint8_t *at;
	uint8_t nonce[12];
	uint32_t n;
	int err;

	if (have < 4) /* and perhaps no memory at all yet */
		return 0;
	at = from->at + from->begin;
	memcpy(&n, at, sizeof(n));
	n = le32toh(n);
	if (n <= TAG || n > VB_SEAL_MAX + TAG)
		return -EBADMSG;
	if (have < 4 + (size_t)n)
		return 0;
	bytes = n - TAG;
	if (!vb_buf_reserve(to, bytes))
		return -ENOMEM;
	nonce_next(&s->in, s->mode, nonce);
	if (s->mode == VB_SEAL_AES)
		err = crypto_aead_aes256gcm_decrypt_afternm(to->at + to->end, NULL, NULL, at + 4, n,
							    at, 4, nonce, &s->in.aes);
	else
		err = crypto_aead_chacha20poly1305_ietf_decrypt(to->at + to->end, NULL, NULL,
								at + 4, n, at, 4, nonce, s->in.key);
	if (err != 0)
		return -EBADMSG;
	to->end += bytes;
	vb_buf_take(from, 4 + (size_t)n);
	return 1;
}
