/* SPDX-License-Identifier: Apache-2.0 */
/* A server's answers, the last of which it keeps; see mail.h. */
#define VB_LOG_ROOM "rpc"
#include "base/log.h"
#include "rpc/mail.h"

#define SETS 512u /* a power of two */
#define WAYS 4u

struct answer {
	struct vb_msg reply; /* its `from` is the client's name; VB_PEER_NONE: empty */
	uint64_t turn;
};

struct vb_answers {
	uint64_t turn;
	struct answer slot[SETS * WAYS];
};

int vb_answers_open(const struct vb_fabric *f, struct vb_answers **out)
{
	*out = NULL;
	if (!(f->caps.flags & VB_CAP_DATAGRAM))
		return 0;
	*out = calloc(1, sizeof(**out));
	return *out != NULL ? 0 : vb_fail(-ENOMEM, "no memory for a server's answers");
}

void vb_answers_close(struct vb_answers *a)
{
	free(a);
}

static struct answer *set_of(struct vb_answers *a, const struct vb_msg *request)
{
	uint64_t h = (request->from * 0x9e3779b97f4a7c15ull) ^
		     (request->subject * 0xff51afd7ed558ccdull);

	return &a->slot[(h >> 32 & (SETS - 1)) * WAYS];
}

static void keep(struct vb_answers *a, const struct vb_msg *request, const struct vb_msg *reply)
{
	struct answer *set = set_of(a, request), *oldest = set;

	for (unsigned i = 1; i < WAYS; i++) {
		if (set[i].turn < oldest->turn)
			oldest = &set[i];
	}
	oldest->reply = *reply;
	oldest->reply.from = request->from;
	oldest->turn = ++a->turn;
}

int vb_rpc_reply(struct vb_answers *a, struct vb_ep *ep, const struct vb_msg *request,
		 struct vb_msg *reply)
{
	struct vb_verb v = {
		.op = VB_OP_SEND, .flags = VB_DATAGRAM, .peer = request->from, .msg = reply};
	struct vb_batch b = {.verbs = &v, .n = 1};
	int rc;

	reply->subject = request->subject;
	reply->tag = 0;
	reply->imm = 0;
	if (a != NULL)
		keep(a, request, reply);
	rc = vb_post(ep, &b);
	return rc < 0 ? rc : 0;
}

bool vb_answers_repeat(struct vb_answers *a, struct vb_ep *ep, const struct vb_msg *request)
{
	struct answer *set;

	if (vb_likely(a == NULL))
		return false;
	set = set_of(a, request);
	for (unsigned i = 0; i < WAYS; i++) {
		struct vb_msg reply = set[i].reply;

		if (reply.from != request->from || reply.subject != request->subject)
			continue;
		set[i].turn = ++a->turn;
		(void)vb_rpc_reply(NULL, ep, request, &reply);
		return true;
	}
	return false;
}
