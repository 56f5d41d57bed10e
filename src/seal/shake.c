/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The handshake: TLS 1.3 with an external pre-shared key (RFC 8446, 2.2 and 4.2.11; OpenSSL's), and
 * nothing of TLS after it.
 *
 * The first message of who calls names the key by an identity, a text that says who calls whom and how
 * frames are protected, and carries a MAC over all of itself, the identity too.  Both ends prove the key
 * over a transcript with fresh ephemeral keys of X25519, each in its own role: a proof is good for one
 * connection and one direction, and is of no use to who has only listened or relayed.  There are no
 * certificates: without the key no handshake ends.  The keys of frames come from TLS's exporter, so who
 * learns the key later cannot open what was sent before.
 *
 * OpenSSL does not see the socket: its records pass through buffers of memory.  It takes no byte more
 * than its last record has, so what is behind that is the first frame.
 */
#define VB_LOG_ROOM "seal"
#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sodium.h>
#include <string.h>

#include "base/log.h"
#include "seal/seal.h"

static const uint8_t suite[2] = {0x13, 0x02}; /* TLS_AES_256_GCM_SHA384 */

struct vb_shake {
	SSL *ssl;
	BIO *in, *out; /* the SSL's */
	const uint8_t *psk;
	bool called;
	const struct vb_shake_who *who;
	void *arg;
	char identity[VB_SHAKE_IDENTITY]; /* of who calls: OpenSSL keeps the pointer */
	const char *unwelcome;
	size_t bytes; /* that have come */
};

static SSL_SESSION *session_of(SSL *ssl, const uint8_t *psk)
{
	const SSL_CIPHER *cipher = SSL_CIPHER_find(ssl, suite);
	SSL_SESSION *s = SSL_SESSION_new();

	if (s != NULL && cipher != NULL && SSL_SESSION_set1_master_key(s, psk, VB_SEAL_KEY) == 1 &&
	    SSL_SESSION_set_cipher(s, cipher) == 1 &&
	    SSL_SESSION_set_protocol_version(s, TLS1_3_VERSION) == 1)
		return s;
	SSL_SESSION_free(s);
	return NULL;
}

/* The side that calls. */
static int use_psk(SSL *ssl, const EVP_MD *md, const unsigned char **id, size_t *id_bytes,
		   SSL_SESSION **out)
{
	struct vb_shake *s = SSL_get_app_data(ssl);

	(void)md; /* there is one suite */
	s->who->say(s->arg, s->identity);
	*id = (const unsigned char *)s->identity;
	*id_bytes = strlen(s->identity);
	*out = session_of(ssl, s->psk);
	return *out != NULL;
}

/* The side that is called. */
static int find_psk(SSL *ssl, const unsigned char *id, size_t id_bytes, SSL_SESSION **out)
{
	struct vb_shake *s = SSL_get_app_data(ssl);

	*out = NULL;
	if (id_bytes >= sizeof(s->identity) || memchr(id, '\0', id_bytes) != NULL)
		id_bytes = 0;
	memcpy(s->identity, id, id_bytes);
	s->identity[id_bytes] = '\0';
	s->unwelcome = s->who->hear(s->arg, s->identity);
	if (s->unwelcome != NULL)
		return 1; /* without a key, so the handshake fails */
	*out = session_of(ssl, s->psk);
	return *out != NULL;
}

SSL_CTX *vb_shake_context(void)
{
	SSL_CTX *ctx = SSL_CTX_new(TLS_method());

	if (ctx == NULL)
		return NULL;
	if (SSL_CTX_set_min_proto_version(ctx, TLS1_3_VERSION) != 1 ||
	    SSL_CTX_set_max_proto_version(ctx, TLS1_3_VERSION) != 1 ||
	    SSL_CTX_set_ciphersuites(ctx, "TLS_AES_256_GCM_SHA384") != 1 ||
	    SSL_CTX_set1_groups_list(ctx, "X25519") != 1 || SSL_CTX_set_num_tickets(ctx, 0) != 1) {
		SSL_CTX_free(ctx);
		return NULL;
	}
	SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
	SSL_CTX_set_read_ahead(ctx, 0);
	SSL_CTX_set_psk_use_session_callback(ctx, use_psk);
	SSL_CTX_set_psk_find_session_callback(ctx, find_psk);
	return ctx;
}

void vb_shake_context_free(SSL_CTX *context)
{
	SSL_CTX_free(context);
}

struct vb_shake *vb_shake_new(SSL_CTX *context, const uint8_t *psk, bool called,
			      const struct vb_shake_who *who, void *arg)
{
	struct vb_shake *s = calloc(1, sizeof(*s));

	if (s == NULL)
		return NULL;
	*s = (struct vb_shake){.psk = psk, .called = called, .who = who, .arg = arg};
	s->ssl = SSL_new(context);
	s->in = BIO_new(BIO_s_mem());
	s->out = BIO_new(BIO_s_mem());
	if (s->ssl == NULL || s->in == NULL || s->out == NULL) {
		BIO_free(s->in);
		BIO_free(s->out);
		SSL_free(s->ssl);
		free(s);
		return NULL;
	}
	BIO_set_mem_eof_return(s->in, -1);
	SSL_set_bio(s->ssl, s->in, s->out); /* they are its now */
	SSL_set_app_data(s->ssl, s);
	if (called) {
		SSL_set_accept_state(s->ssl);
	} else {
		/* No certificate is anybody's: there is no authority. */
		SSL_set_verify(s->ssl, SSL_VERIFY_PEER, NULL);
		SSL_set_connect_state(s->ssl);
	}
	return s;
}

void vb_shake_free(struct vb_shake *s)
{
	if (s == NULL)
		return;
	SSL_free(s->ssl);
	free(s);
}

/* All of a BIO to the end of b; false: no memory. */
static bool drain(BIO *from, struct vb_buf *b)
{
	size_t n = BIO_ctrl_pending(from);
	int got;

	if (n == 0)
		return true;
	if (!vb_buf_reserve(b, n))
		return false;
	got = BIO_read(from, b->at + b->end, (int)n);
	b->end += got > 0 ? (size_t)got : 0;
	return got == (int)n;
}

static bool feed(struct vb_shake *s, struct vb_buf *in)
{
	size_t n = vb_buf_bytes(in);

	s->bytes += n;
	if (n == 0)
		return true;
	if (BIO_write(s->in, in->at + in->begin, (int)n) != (int)n)
		return false;
	vb_buf_take(in, n);
	return true;
}

static int fails(const char **why, int err, const char *because)
{
	*why = because;
	return err;
}

int vb_shake_step(struct vb_shake *s, struct vb_buf *in, struct vb_buf *out, const char **why)
{
	int rc, reason;

	ERR_clear_error();
	if (!feed(s, in))
		return fails(why, -ENOMEM, "there was no memory for its handshake");
	rc = SSL_do_handshake(s->ssl);
	reason = SSL_get_error(s->ssl, rc);
	if (reason == SSL_ERROR_SSL)
		vb_debug("a handshake failed: %s", ERR_reason_error_string(ERR_peek_error()));
	ERR_clear_error();
	if (!drain(s->out, out))
		return fails(why, -ENOMEM, "there was no memory for its handshake");
	if (rc != 1) {
		if (s->unwelcome != NULL)
			return fails(why, -EACCES, s->unwelcome);
		/* Of who has proved it frames may be in there as well. */
		if (s->bytes > VB_SHAKE_MAX)
			return fails(why, -EACCES, "its handshake is too long");
		if (reason == SSL_ERROR_WANT_READ || reason == SSL_ERROR_WANT_WRITE)
			return 0;
		return fails(why, -EACCES, "it has not proved that it has the key");
	}
	/* Only by the key: there is no other way, and this makes sure. */
	if (SSL_session_reused(s->ssl) != 1)
		return fails(why, -EACCES, "its handshake was without the key");
	if (!drain(s->in, in))
		return fails(why, -ENOMEM, "there was no memory for what it sends");
	return 1;
}

bool vb_shake_export(struct vb_shake *s, const char *label, uint8_t *to, size_t bytes)
{
	return SSL_export_keying_material(s->ssl, to, bytes, label, strlen(label), NULL, 0, 0) == 1;
}

struct vb_seal *vb_shake_seal(struct vb_shake *s, const char *label, enum vb_seal_mode mode)
{
	uint8_t keys[2 * VB_SEAL_KEY]; /* of who calls, of who is called */
	const uint8_t *caller = keys, *called = keys + VB_SEAL_KEY;
	struct vb_seal *seal = NULL;

	if (vb_shake_export(s, label, keys, sizeof(keys)))
		seal = s->called ? vb_seal_new(mode, called, caller)
				 : vb_seal_new(mode, caller, called);
	sodium_memzero(keys, sizeof(keys));
	return seal;
}
