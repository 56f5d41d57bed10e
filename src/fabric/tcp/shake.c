/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The handshake: TLS 1.3 with an external pre-shared key (RFC 8446, 2.2 and 4.2.11; OpenSSL's), and
 * nothing of TLS after it.
 *
 * The key is derived from the secret of the run, which only members of the cluster have.  The client's
 * first message names it by an identity that says who connects to whom and how frames are protected,
 *
 *	"verbena tcp 1: rank 0 to rank 2, aes256gcm"
 *	"verbena tcp 1: client 00112233445566778899aabbccddeeff to rank 2, aes256gcm"
 *
 * and carries a MAC over all of itself, the identity too.  Both ends prove the key over a transcript
 * with fresh ephemeral keys of X25519, each in its own role: a proof is good for one connection and one
 * direction, and is of no use to who has only listened or relayed.  There are no certificates: without
 * the key no handshake ends.  The keys of frames come from TLS's exporter.
 *
 * OpenSSL does not see the socket: its records pass through buffers of memory.  It takes no byte more
 * than its last record has, so what is behind that in c->raw is the first frame.
 */
#define VB_LOG_ROOM "tcp"
#include <openssl/err.h>

#include "base/log.h"
#include "fabric/tcp/inner.h"

#define IDENTITY_MAX 112

static const char exporter_label[] = "EXPORTER-verbena-tcp-1";
static const uint8_t suite[2] = {0x13, 0x02}; /* TLS_AES_256_GCM_SHA384 */

static void identity_make(const struct tcp_conn *c, char to[IDENTITY_MAX])
{
	char id[2 * NET_ID + 1];

	if (c->from == TCP_CLIENT)
		snprintf(to, IDENTITY_MAX, "verbena tcp %u: client %s to rank %u, %s", TCP_VERSION,
			 sodium_bin2hex(id, sizeof(id), c->id, NET_ID), c->to,
			 tcp_mode_names[c->mode]);
	else
		snprintf(to, IDENTITY_MAX, "verbena tcp %u: rank %u to rank %u, %s", TCP_VERSION,
			 c->from, c->to, tcp_mode_names[c->mode]);
}

/* Who it says to be, as far as that can be read. */
static bool name_read(const char *text, struct tcp_conn *as)
{
	char id[2 * NET_ID + 1];
	size_t bytes;

	if (sscanf(text, "verbena tcp 1: rank %u to", &as->from) == 1)
		return as->from != TCP_CLIENT;
	as->from = TCP_CLIENT;
	return sscanf(text, "verbena tcp 1: client %32[0-9a-f] to", id) == 1 &&
	       sodium_hex2bin(as->id, sizeof(as->id), id, strlen(id), NULL, &bytes, NULL) == 0 &&
	       bytes == sizeof(as->id);
}

/* The rank or client that says so, into `out`; only what identity_make writes is taken. */
static bool identity_read(const struct tcp_conn *c, const uint8_t *text, size_t bytes,
			  struct tcp_conn *out)
{
	char theirs[IDENTITY_MAX], ours[IDENTITY_MAX];
	struct tcp_conn as = {.to = c->t->w->f->host};

	if (bytes == 0 || bytes >= sizeof(theirs))
		return false;
	memcpy(theirs, text, bytes);
	theirs[bytes] = '\0';
	if (!name_read(theirs, &as))
		return false;
	for (unsigned m = 0; m < TCP_MODES; m++) {
		as.mode = (enum tcp_mode)m;
		identity_make(&as, ours);
		if (strcmp(ours, theirs) != 0)
			continue;
		*out = as;
		return true;
	}
	return false;
}

static SSL_SESSION *session_of(SSL *ssl, const uint8_t psk[TCP_KEY])
{
	const SSL_CIPHER *cipher = SSL_CIPHER_find(ssl, suite);
	SSL_SESSION *s = SSL_SESSION_new();

	if (s != NULL && cipher != NULL && SSL_SESSION_set1_master_key(s, psk, TCP_KEY) == 1 &&
	    SSL_SESSION_set_cipher(s, cipher) == 1 &&
	    SSL_SESSION_set_protocol_version(s, TLS1_3_VERSION) == 1)
		return s;
	SSL_SESSION_free(s);
	return NULL;
}

/* The client's side.  The identity must stay: it is the connection's. */
static int use_psk(SSL *ssl, const EVP_MD *md, const unsigned char **id, size_t *id_bytes,
		   SSL_SESSION **out)
{
	struct tcp_conn *c = SSL_get_app_data(ssl);
	static _Thread_local char identity[IDENTITY_MAX];

	(void)md; /* there is one suite */
	identity_make(c, identity);
	*id = (const unsigned char *)identity;
	*id_bytes = strlen(identity);
	*out = session_of(ssl, c->t->psk);
	return *out != NULL;
}

/* Whether who is so protected may connect to us. */
static const char *unlike(const struct tcp_conn *c, enum tcp_mode mode)
{
	if ((mode == TCP_PLAIN) == c->t->sealed)
		return "one end seals its frames, the other does not: all have to bind to "
		       "loopback, "
		       "or none";
	if (mode == TCP_AES && !(c->t->here.flags & TCP_HAS_AES))
		return "it wants AES, which this CPU has not";
	return NULL;
}

static const char *unwelcome(const struct tcp_conn *c, uint32_t from, enum tcp_mode mode)
{
	const struct am_wire *w = c->t->w;

	if (from == TCP_CLIENT)
		return w->f->elastic != NULL ? unlike(c, mode) : "there are no clients in this run";
	if (from >= w->f->hosts || from > w->f->host)
		return "it has no business to connect here";
	return unlike(c, mode);
}

/* The server's side. */
static int find_psk(SSL *ssl, const unsigned char *id, size_t id_bytes, SSL_SESSION **out)
{
	struct tcp_conn *c = SSL_get_app_data(ssl);
	struct tcp_conn as;

	*out = NULL;
	if (!identity_read(c, id, id_bytes, &as)) {
		c->why = "it does not say who it is as members do";
		return 1;
	}
	c->why = unwelcome(c, as.from, as.mode);
	if (c->why != NULL)
		return 1;
	c->from = as.from;
	memcpy(c->id, as.id, sizeof(c->id));
	c->to = c->t->w->f->host;
	c->mode = as.mode;
	*out = session_of(ssl, c->t->psk);
	return *out != NULL;
}

SSL_CTX *tcp_shake_context(void)
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

int tcp_shake_begin(struct tcp_conn *c)
{
	struct tcp_shake *s = &c->shake;

	s->ssl = SSL_new(c->t->ssl);
	s->in = BIO_new(BIO_s_mem());
	s->out = BIO_new(BIO_s_mem());
	if (s->ssl == NULL || s->in == NULL || s->out == NULL) {
		BIO_free(s->in);
		BIO_free(s->out);
		SSL_free(s->ssl);
		*s = (struct tcp_shake){0};
		return vb_fail(-ENOMEM, "no memory for a handshake");
	}
	BIO_set_mem_eof_return(s->in, -1);
	SSL_set_bio(s->ssl, s->in, s->out); /* they are its now */
	SSL_set_app_data(s->ssl, c);
	if (c->accepted) {
		SSL_set_accept_state(s->ssl);
	} else {
		/* No certificate is anybody's: there is no authority. */
		SSL_set_verify(s->ssl, SSL_VERIFY_PEER, NULL);
		SSL_set_connect_state(s->ssl);
	}
	return 0;
}

void tcp_shake_end(struct tcp_conn *c)
{
	SSL_free(c->shake.ssl);
	c->shake = (struct tcp_shake){0};
}

/* What OpenSSL has written; false: no memory. */
static bool drain(struct tcp_conn *c)
{
	size_t n = BIO_ctrl_pending(c->shake.out);
	int got;

	if (n == 0)
		return true;
	if (!tcp_buf_reserve(&c->out, n))
		return false;
	got = BIO_read(c->shake.out, c->out.at + c->out.end, (int)n);
	c->out.end += got > 0 ? (size_t)got : 0;
	return got == (int)n;
}

static bool feed(struct tcp_conn *c)
{
	size_t n = tcp_buf_bytes(&c->raw);

	if (n == 0)
		return true;
	if (BIO_write(c->shake.in, c->raw.at + c->raw.begin, (int)n) != (int)n)
		return false;
	tcp_buf_take(&c->raw, n);
	return true;
}

/* What came behind the last record goes back. */
static bool give_back(struct tcp_conn *c)
{
	size_t n = BIO_ctrl_pending(c->shake.in);
	int got;

	if (n == 0)
		return true;
	if (!tcp_buf_reserve(&c->raw, n))
		return false;
	got = BIO_read(c->shake.in, c->raw.at + c->raw.end, (int)n);
	c->raw.end += got > 0 ? (size_t)got : 0;
	return got == (int)n;
}

static int frame_keys(struct tcp_conn *c)
{
	uint8_t keys[2 * TCP_KEY]; /* of who connects, of who is connected to */
	const uint8_t *client = keys, *server = keys + TCP_KEY;

	if (c->mode == TCP_PLAIN)
		return 0;
	if (SSL_export_keying_material(c->shake.ssl, keys, sizeof(keys), exporter_label,
				       sizeof(exporter_label) - 1, NULL, 0, 0) == 1)
		c->seal = c->accepted ? tcp_seal_new(c->mode, server, client)
				      : tcp_seal_new(c->mode, client, server);
	sodium_memzero(keys, sizeof(keys));
	return c->seal != NULL ? 0 : -ENOMEM;
}

int tcp_shake_step(struct tcp_conn *c)
{
	struct tcp_shake *s = &c->shake;
	int rc, reason;

	c->shaken += tcp_buf_bytes(&c->raw);
	ERR_clear_error();
	if (!feed(c)) {
		c->why = "there was no memory for its handshake";
		return -EACCES;
	}
	rc = SSL_do_handshake(s->ssl);
	reason = SSL_get_error(s->ssl, rc);
	if (reason == SSL_ERROR_SSL)
		vb_debug("a handshake failed: %s", ERR_reason_error_string(ERR_peek_error()));
	ERR_clear_error();
	if (!drain(c)) {
		c->why = "there was no memory for its handshake";
		return -EACCES;
	}
	if (rc != 1) {
		/* Of who has proved it frames may be in there as well. */
		if (c->shaken > TCP_SHAKE_MAX)
			c->why = "its handshake is too long";
		else if (reason == SSL_ERROR_WANT_READ || reason == SSL_ERROR_WANT_WRITE)
			return 0;
		if (c->why == NULL)
			c->why = "it has not proved the secret of this run";
		return -EACCES;
	}
	/* Only by the key: there is no other way, and this makes sure. */
	if (SSL_session_reused(s->ssl) != 1) {
		c->why = "its handshake was without the key";
		return -EACCES;
	}
	if (!give_back(c) || frame_keys(c) != 0) {
		c->why = "there was no memory for its keys";
		return -EACCES;
	}
	tcp_shake_end(c);
	return 1;
}
