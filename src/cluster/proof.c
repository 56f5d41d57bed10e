/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a connection begins: both ends agree on how frames will be protected, and prove the key
 * (seal/shake.c).
 *
 *	HELLO       what the member can and wants           plain, and so somebody between may change it:
 *	MODE        what the root makes of it               neither end takes less than it wants itself
 *	PROOF       TLS of the member's ...                 its first message says "verbena cluster 2:
 *	PROOF_ROOT  ... and of the root's                   member (3) to root, aes256gcm", 3 being what
 *	                                                   HELLO was: so both are proved, too
 *
 * An end wants its frames sealed if the connection's addresses are beyond loopback, or if it was told to;
 * whoever reads on loopback is root of the machine, and needs no network.  One that wants it and one that
 * is only willing seal; one that was told never to, and one that wants it, part.
 *
 * Besides the keys of frames both ends have a mask of the handshake's own, under which the secret of the run
 * travels where frames are plain.
 */
#define VB_LOG_ROOM "cluster"
#include "cluster/inner.h"

#include <errno.h>
#include <string.h>

#include "base/log.h"

static const char frames_label[] = "EXPORTER-verbena-cluster-2-frames";
static const char secret_label[] = "EXPORTER-verbena-cluster-2-secret";

static void say(void *arg, char to[VB_SHAKE_IDENTITY])
{
	const struct cluster_conn *k = arg;

	snprintf(to, VB_SHAKE_IDENTITY, "verbena cluster %d: member (%x) to root, %s", CL_VERSION,
		 k->hello, vb_seal_mode_names[k->mode]);
}

static const char *hear(void *arg, const char *said)
{
	char right[VB_SHAKE_IDENTITY];

	say(arg, right);
	return strcmp(said, right) == 0 ? NULL : "does not say who it is as members do";
}

/* ---- what is wanted ---- */

static bool wants_seal(const struct vb_cluster *c, const struct cluster_conn *k)
{
	return c->seal == VB_SEALING_ALWAYS || (c->seal == VB_SEALING_AUTO && k->beyond);
}

uint32_t proof_flags(const struct vb_cluster *c, const struct cluster_conn *k)
{
	return (wants_seal(c, k) ? CL_WANTS_SEAL : 0) |
	       (c->seal == VB_SEALING_NEVER ? CL_NEVER_SEALS : 0) |
	       (vb_seal_has_aes() ? CL_HAS_AES : 0);
}

bool proof_choose(const struct vb_cluster *c, struct cluster_conn *k, uint32_t theirs)
{
	uint32_t ours = proof_flags(c, k), either = ours | theirs;

	k->hello = theirs;
	if ((either & CL_WANTS_SEAL) != 0 && (either & CL_NEVER_SEALS) != 0)
		return false;
	k->mode = !(either & CL_WANTS_SEAL)    ? VB_SEAL_PLAIN
		  : ours & theirs & CL_HAS_AES ? VB_SEAL_AES
					       : VB_SEAL_CHACHA;
	return true;
}

bool proof_accepts(const struct vb_cluster *c, struct cluster_conn *k, uint32_t mode)
{
	uint32_t ours = proof_flags(c, k);

	k->mode = (enum vb_seal_mode)mode;
	return mode == VB_SEAL_PLAIN ? !(ours & CL_WANTS_SEAL)
				     : !(ours & CL_NEVER_SEALS) &&
					       (mode != VB_SEAL_AES || (ours & CL_HAS_AES) != 0);
}

/* ---- the handshake ---- */

/* What TLS has to say, in frames. */
static void put_frames(struct cluster_conn *k, struct vb_buf *out)
{
	enum cl_type type = k->called ? CL_PROOF_ROOT : CL_PROOF;
	size_t n;
	uint8_t *to;

	while ((n = vb_buf_bytes(out)) > 0) {
		n = n < CL_PROOF_MAX ? n : CL_PROOF_MAX;
		to = conn_room(k, CL_HEADER + n);
		if (to == NULL)
			return;
		conn_put(k, cl_put_bytes(to, type, out->at + out->begin, (uint32_t)n));
		vb_buf_take(out, n);
	}
}

/* The keys of frames take over behind what has been queued. */
static int take_keys(struct cluster_conn *k)
{
	struct vb_seal *seal;

	if (!vb_shake_export(k->shake, secret_label, k->mask, sizeof(k->mask)))
		return -ENOMEM;
	if (k->mode == VB_SEAL_PLAIN)
		return 0;
	seal = vb_shake_seal(k->shake, frames_label, k->mode);
	if (seal == NULL)
		return -ENOMEM;
	conn_seal(k, seal);
	return 0;
}

int proof_step(struct cluster_conn *k, const void *bytes, size_t n)
{
	struct vb_buf in = {0}, out = {0};
	const char *why = NULL;
	int rc = vb_buf_add(&in, bytes, n) ? vb_shake_step(k->shake, &in, &out, &why) : -ENOMEM;

	/* A frame holds whole records of TLS, and the last one ends with the handshake. */
	if (rc == 1 && vb_buf_bytes(&in) > 0) {
		why = "its proof has something behind it";
		rc = -EACCES;
	}
	if (rc >= 0)
		put_frames(k, &out);
	if (rc == 1 && !k->broken)
		rc = take_keys(k) == 0 ? 1 : -ENOMEM;
	vb_buf_free(&in);
	vb_buf_free(&out);
	if (rc == -ENOMEM)
		conn_starve(k, "there is no memory left for its proof");
	else if (rc < 0)
		vb_debug("%s: %s", k->peer, why);
	if (rc != 0) {
		vb_shake_free(k->shake);
		k->shake = NULL;
	}
	return rc;
}

int proof_begin(struct vb_cluster *c, struct cluster_conn *k, bool called)
{
	static const struct vb_shake_who who = {.say = say, .hear = hear};

	k->called = called;
	if (c->context == NULL)
		c->context = vb_shake_context();
	if (c->context != NULL)
		k->shake = vb_shake_new(c->context, c->psk, called, &who, k);
	if (k->shake == NULL) {
		conn_starve(k, "there is no memory left for its proof");
		return -ENOMEM;
	}
	return called ? 0 : proof_step(k, NULL, 0);
}
