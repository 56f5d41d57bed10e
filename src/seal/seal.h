/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What two processes that share a key do before they believe each other, and how what they say then is
 * sealed: for the rendezvous of a cluster and for the fabric tcp.
 *
 *	shake.c  a TLS 1.3 handshake proves the key to both ends, and makes keys of its own
 *	seal.c   records sealed with those
 *	buf.c    the bytes that both work on
 *
 * Nothing here touches a socket: bytes in, bytes out.  A build without libsodium and OpenSSL has none.c.
 */
#ifndef VB_SEAL_SEAL_H
#define VB_SEAL_SEAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- buf.c ---- */

/* Bytes begin to end of at[room] count. */
struct vb_buf {
	uint8_t *at;
	size_t begin, end, room;
};

static inline size_t vb_buf_bytes(const struct vb_buf *b)
{
	return b->end - b->begin;
}

/* Room for so many more; what counts may move to the front.  False: no memory. */
bool vb_buf_reserve(struct vb_buf *b, size_t bytes);
/* So many more, from elsewhere.  False: no memory. */
bool vb_buf_add(struct vb_buf *b, const void *bytes, size_t n);
/* The first so many have been dealt with. */
void vb_buf_take(struct vb_buf *b, size_t bytes);
void vb_buf_free(struct vb_buf *b);

/* ---- seal.c ---- */

#define VB_SEAL_KEY  32u
#define VB_SEAL_MAX  65536u /* plain bytes of one record */
#define VB_SEAL_MORE 20u    /* what a record has besides: its length, its tag */

/* What a user is asked: whether to seal beyond loopback, always, or never. */
enum vb_sealing { VB_SEALING_AUTO, VB_SEALING_ALWAYS, VB_SEALING_NEVER };
#define VB_SEALING_NEVER_NAME "never-on-a-trusted-network"
#define VB_SEALING_NAMES      "auto|always|" VB_SEALING_NEVER_NAME

/* How frames are protected; both ends say the same in the handshake. */
enum vb_seal_mode { VB_SEAL_PLAIN, VB_SEAL_AES, VB_SEAL_CHACHA, VB_SEAL_MODES };
extern const char *const vb_seal_mode_names[VB_SEAL_MODES];

/* Whether this CPU has what VB_SEAL_AES needs; sodium_init has been called. */
bool vb_seal_has_aes(void);

struct vb_seal; /* the keys of one connection, both ways */

/* Keys of VB_SEAL_KEY bytes each; NULL: no memory. */
struct vb_seal *vb_seal_new(enum vb_seal_mode mode, const uint8_t *sending,
			    const uint8_t *receiving);
void vb_seal_free(struct vb_seal *s);
/* One record of `bytes` (1 to VB_SEAL_MAX); returns what it takes, VB_SEAL_MORE more. */
size_t vb_seal_put(struct vb_seal *s, uint8_t *to, const uint8_t *plain, size_t bytes);
/* The next record of `from`, opened at the end of `to`: 1; 0: not all of it is there; -EBADMSG: it is
 * none of the other end's, or not the next; -ENOMEM. */
int vb_seal_get(struct vb_seal *s, struct vb_buf *from, struct vb_buf *to);

/* ---- shake.c ---- */

#define VB_SHAKE_IDENTITY 112    /* of a text that says who calls, its NUL included */
#define VB_SHAKE_MAX      16384u /* bytes that a handshake may take */

struct ssl_ctx_st; /* OpenSSL's SSL_CTX */
struct vb_shake;   /* one end of one handshake */

/* NULL: OpenSSL does not start. */
struct ssl_ctx_st *vb_shake_context(void);
void vb_shake_context_free(struct ssl_ctx_st *context);

struct vb_shake_who {
	/* At the end that calls: what it says of itself, who is called, and how frames are protected. */
	void (*say)(void *arg, char to[VB_SHAKE_IDENTITY]);
	/* At the end that is called: NULL, or why who says so is not let in. */
	const char *(*hear)(void *arg, const char *said);
};

/* The key of VB_SEAL_KEY bytes is kept as a pointer.  NULL: no memory. */
struct vb_shake *vb_shake_new(struct ssl_ctx_st *context, const uint8_t *psk, bool called,
			      const struct vb_shake_who *who, void *arg);
void vb_shake_free(struct vb_shake *s);
/* Takes what is in `in`, and leaves in `out` what is to be sent, whatever it returns.  1: both are proved, and what
 * is left in `in` came behind; 0: more is needed; -EACCES and -ENOMEM with *why. */
int vb_shake_step(struct vb_shake *s, struct vb_buf *in, struct vb_buf *out, const char **why);
/* After it: bytes that both ends have, and nobody else ("EXPORTER-..."; RFC 8446, 7.5).  False: no memory. */
bool vb_shake_export(struct vb_shake *s, const char *label, uint8_t *to, size_t bytes);
/* The keys of frames, from there; `mode` is not VB_SEAL_PLAIN.  NULL: no memory. */
struct vb_seal *vb_shake_seal(struct vb_shake *s, const char *label, enum vb_seal_mode mode);

#endif
