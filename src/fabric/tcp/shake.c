/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The proof (seal/shake.c), with what a connection of the fabric has besides: who calls whom.
 *
 * The key is derived from the secret of the run, which only members of the cluster have.  The identity is
 * one of
 *
 *	"verbena tcp 1: rank 0 to rank 2, aes256gcm"
 *	"verbena tcp 1: client 00112233445566778899aabbccddeeff to rank 2, aes256gcm"
 */
#define VB_LOG_ROOM "tcp"
#include "base/log.h"
#include "fabric/tcp/inner.h"

static const char exporter_label[] = "EXPORTER-verbena-tcp-1";

static void identity_make(const struct tcp_conn *c, char to[VB_SHAKE_IDENTITY])
{
	char id[2 * NET_ID + 1];

	if (c->from == TCP_CLIENT)
		snprintf(to, VB_SHAKE_IDENTITY, "verbena tcp %u: client %s to rank %u, %s",
			 TCP_VERSION, sodium_bin2hex(id, sizeof(id), c->id, NET_ID), c->to,
			 vb_seal_mode_names[c->mode]);
	else
		snprintf(to, VB_SHAKE_IDENTITY, "verbena tcp %u: rank %u to rank %u, %s",
			 TCP_VERSION, c->from, c->to, vb_seal_mode_names[c->mode]);
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
static bool identity_read(const struct tcp_conn *c, const char *theirs, struct tcp_conn *out)
{
	struct tcp_conn as = {.to = c->t->w->f->host};
	char ours[VB_SHAKE_IDENTITY];

	if (!name_read(theirs, &as))
		return false;
	for (unsigned m = 0; m < VB_SEAL_MODES; m++) {
		as.mode = (enum vb_seal_mode)m;
		identity_make(&as, ours);
		if (strcmp(ours, theirs) != 0)
			continue;
		*out = as;
		return true;
	}
	return false;
}

/* Whether who is so protected may connect to us. */
static const char *unlike(const struct tcp_conn *c, enum vb_seal_mode mode)
{
	if ((mode == VB_SEAL_PLAIN) == c->t->sealed)
		return "one end seals its frames, the other does not: all have to bind to "
		       "loopback, "
		       "or none";
	if (mode == VB_SEAL_AES && !(c->t->here.flags & TCP_HAS_AES))
		return "it wants AES, which this CPU has not";
	return NULL;
}

static const char *unwelcome(const struct tcp_conn *c, uint32_t from, enum vb_seal_mode mode)
{
	const struct am_wire *w = c->t->w;

	if (from == TCP_CLIENT)
		return w->f->elastic != NULL ? unlike(c, mode) : "there are no clients in this run";
	if (from >= w->f->hosts || from > w->f->host)
		return "it has no business to connect here";
	return unlike(c, mode);
}

static void say(void *arg, char to[VB_SHAKE_IDENTITY])
{
	identity_make(arg, to);
}

static const char *hear(void *arg, const char *said)
{
	struct tcp_conn *c = arg, as;
	const char *why;

	if (!identity_read(c, said, &as))
		return "it does not say who it is as members do";
	why = unwelcome(c, as.from, as.mode);
	if (why != NULL)
		return why;
	c->from = as.from;
	memcpy(c->id, as.id, sizeof(c->id));
	c->to = c->t->w->f->host;
	c->mode = as.mode;
	return NULL;
}

int tcp_shake_begin(struct tcp_conn *c)
{
	static const struct vb_shake_who who = {.say = say, .hear = hear};

	c->shake = vb_shake_new(c->t->ssl, c->t->psk, c->accepted, &who, c);
	return c->shake != NULL ? 0 : vb_fail(-ENOMEM, "no memory for a handshake");
}

void tcp_shake_end(struct tcp_conn *c)
{
	vb_shake_free(c->shake);
	c->shake = NULL;
}

int tcp_shake_step(struct tcp_conn *c)
{
	int rc = vb_shake_step(c->shake, &c->raw, &c->out, &c->why);

	if (rc != 1)
		return rc;
	if (c->mode != VB_SEAL_PLAIN) {
		c->seal = vb_shake_seal(c->shake, exporter_label, c->mode);
		if (c->seal == NULL) {
			c->why = "there was no memory for its keys";
			return -ENOMEM;
		}
	}
	tcp_shake_end(c);
	return 1;
}
