/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arbitrary messages to the owner of memory, and arbitrary answers to a sender.
 *
 * Whatever comes: nothing outside of this host's nodes is read or written, no answer is longer than
 * was foreseen, what was taken in does not depend on bytes beyond its end, and the same message on
 * the same memory does the same.
 *
 * Input: the first byte says how many verbs the header claims, the rest is the body; and once more
 * the rest is an answer to one verb of each kind.
 */
#include <stdio.h>
#include <stdlib.h>

#include "fabric/net/am/wire.h"

#define NODES      5u
#define HOSTS      2u
#define HOST       1u
#define NODE_BYTES 256u
#define MEMORY     (2u * NODE_BYTES)
#define CANARY     64u
#define BODY_MAX   4096u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct run {
	_Alignas(16) uint8_t memory[CANARY + MEMORY + CANARY];
	uint8_t *answer;
	uint32_t bytes;
	unsigned told;
};

static void must(bool ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "fuzz_am_wire: %s\n", what);
	abort();
}

static int deliver(void *ctx, uint32_t client, const struct vb_msg *m)
{
	struct run *r = ctx;

	must(client < 1u << VB_PEER_CLIENT_BITS, "an endpoint's number of more than 24 bits");
	must(m->len <= VB_MSG_DATA, "a message that is longer than it can be");
	must(vb_peer_node(m->from) < NODES, "a message from a node that is not there");
	r->told++;
	return r->told % 4 == 3 ? -EAGAIN : 0;
}

static uint64_t ticks;

static uint64_t now(void)
{
	return ++ticks;
}

static void execute(struct run *r, const uint8_t *body, uint32_t bytes, uint32_t verbs,
		    uint32_t most)
{
	struct am_owner owner = {.memory = r->memory + CANARY,
				 .node_bytes = NODE_BYTES,
				 .nodes = NODES,
				 .hosts = HOSTS,
				 .host = HOST,
				 .deliver = deliver,
				 .ctx = r,
				 .now = now};
	/* The time of some messages is over before they are done. */
	struct am_header h = {.kind = AM_VERBS, .verbs = verbs, .bytes = bytes, .clock = 200};
	uint32_t late;

	for (size_t i = 0; i < sizeof(r->memory); i++)
		r->memory[i] = (uint8_t)(i * 31);
	r->told = 0;
	ticks = 0;
	/* Exactly as long as foreseen, for the address sanitizer. */
	r->answer = malloc(most > 0 ? most : 1);
	must(r->answer != NULL, "no memory");
	r->bytes = am_body_execute(&owner, &h, body, r->answer, &late);
	must(late <= verbs, "more late than there are");
	must(r->bytes <= most, "an answer longer than foreseen");
	for (size_t i = 0; i < CANARY; i++) {
		must(r->memory[i] == (uint8_t)(i * 31), "wrote in front of the memory");
		must(r->memory[CANARY + MEMORY + i] == (uint8_t)((CANARY + MEMORY + i) * 31),
		     "wrote behind the memory");
	}
}

static void be_owner(const uint8_t *body, uint32_t bytes, uint32_t verbs)
{
	static struct run one, two;
	struct am_header h = {.kind = AM_VERBS, .verbs = verbs, .bytes = bytes}, got;
	uint8_t wire[AM_HEADER];
	const char *why;
	uint32_t most;

	am_header_put(wire, &h);
	must(am_header_get(wire, sizeof(wire), &got, &why) == 0, "our own header was refused");
	must(got.verbs == verbs && got.bytes == bytes, "a header changed on its way");
	if (am_body_check(body, bytes, verbs, &most) != 0)
		return;
	execute(&one, body, bytes, verbs, most);
	execute(&two, body, bytes, verbs, most);
	must(one.bytes == two.bytes && memcmp(one.answer, two.answer, one.bytes) == 0 &&
		     memcmp(one.memory, two.memory, sizeof(one.memory)) == 0,
	     "the same message did something else the second time");
	free(one.answer);
	free(two.answer);
}

static void be_sender(const uint8_t *answer, uint32_t bytes)
{
	struct am_cursor c = {answer, answer + bytes};
	uint8_t data[32];

	for (uint8_t op = 0; op < VB_OP_COUNT; op++) {
		struct vb_verb v = {
			.op = op, .flags = VB_SIGNALLED, .len = sizeof(data), .buf = data};
		const uint8_t *before = c.at;

		if (am_answer_get(&c, &v) != 0) {
			must(c.at == before, "took bytes of an answer that was cut short");
			return;
		}
		must(v.status <= 0, "an error that is none");
		must((uint32_t)(c.at - before) <= am_verb_answer(&v), "took too much");
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *why;
	struct am_header h;

	(void)am_header_get(data, size, &h, &why);
	if (size >= AM_HEADER && am_header_get(data, AM_HEADER, &h, &why) == 0)
		must(h.verbs <= AM_VERBS_MAX && h.bytes <= AM_BODY_MAX, "limits let through");
	if (size < 1 || size > BODY_MAX)
		return 0;
	be_owner(data + 1, (uint32_t)size - 1, data[0]);
	be_sender(data + 1, (uint32_t)size - 1);
	return 0;
}
