/* SPDX-License-Identifier: Apache-2.0 */
/* Named regions of the network core: this host's directory, questions to others and from others,
 * with control messages that find no room, come twice, late, bent or not at all. */
#include "net_fake.h"

/* What goes over the wire, as fabric/net/region.c lays it out; a test that reads the peers' side
 * has to. */
struct ask {
	uint8_t kind, version;
	uint16_t node;
	uint32_t number;
	uint64_t bytes;
	char name[NET_REGION_NAME];
};

struct answer {
	uint8_t kind, version, fresh, pad;
	uint32_t number;
	int32_t err;
	uint32_t pad2;
	uint64_t offset;
};

struct named {
	uint8_t kind, version, pad[2];
	uint32_t number;
	int32_t err;
	uint32_t count;
	uint64_t bytes, id;
	char name[NET_REGION_NAME];
};

#define ASK     1
#define ANSWER  2
#define LIST    3
#define NAMED   4
#define VERSION 2

static struct ask ask_of(unsigned i)
{
	struct ask q;

	assert_true(i < fake.n_controls);
	assert_int_equal(fake.controls[i].bytes, sizeof(q));
	memcpy(&q, fake.controls[i].data, sizeof(q));
	assert_int_equal(q.kind, ASK);
	return q;
}

static void came_held(uint32_t from, const void *data, size_t bytes)
{
	net_control_came(fake.f, from, data, bytes);
}

static void came(uint32_t from, const void *data, size_t bytes)
{
	pthread_mutex_lock(&fake.f->engine);
	came_held(from, data, bytes);
	pthread_mutex_unlock(&fake.f->engine);
}

/* A host asks for a region of ours; what it is answered. */
static struct answer ask_us(uint32_t from, uint16_t node, const char *name, uint64_t bytes,
			    uint32_t number)
{
	struct ask q = {
		.kind = ASK, .version = VERSION, .node = node, .number = number, .bytes = bytes};
	struct answer a;
	unsigned before = fake.n_controls;

	memcpy(q.name, name, strnlen(name, sizeof(q.name)));
	came(from, &q, sizeof(q));
	assert_int_equal(fake.n_controls, before + 1);
	assert_int_equal(fake.controls[before].host, from);
	assert_int_equal(fake.controls[before].bytes, sizeof(a));
	memcpy(&a, fake.controls[before].data, sizeof(a));
	assert_int_equal(a.kind, ANSWER);
	assert_int_equal(a.number, number);
	return a;
}

/* ---- what the others do when they are asked ---- */

static struct peers {
	unsigned deaf; /* so many questions are not answered */
	struct answer bend;
	bool once; /* all is answered from here on */
	unsigned answered;
} peers;

/* The owner answers when the asker looks at the engine next, as a wire does; not from within. */
static bool answer_next(void)
{
	struct answer a = {.kind = ANSWER, .version = VERSION, .fresh = 1, .offset = 4096};
	struct ask q;

	if (peers.answered == fake.n_controls)
		return false;
	q = ask_of(peers.answered);
	if (peers.deaf > 0) {
		peers.deaf--;
		peers.answered++;
		return false;
	}
	a.number = q.number;
	a.err = peers.bend.err;
	if (peers.bend.offset != 0)
		a.offset = peers.bend.offset;
	came_held(fake.controls[peers.answered++].host, &a, sizeof(a));
	return true;
}

static void open_all(void)
{
	peers = (struct peers){0};
	fake.on_progress = answer_next;
	fake_open();
}

/* ---- tests ---- */

static void here(void **state)
{
	vb_addr a, b, c;
	bool fresh;

	(void)state;
	open_all();
	assert_int_equal(vb_region(fake.fabric, 3, "locks", 100, &a, &fresh), 0);
	assert_true(fresh);
	assert_int_equal(vb_addr_node(a), 3);
	assert_int_equal(vb_addr_offset(a) % 64, 0);
	assert_int_not_equal(vb_addr_offset(a), 0);
	assert_int_equal(vb_region(fake.fabric, 3, "locks", 100, &b, &fresh), 0);
	assert_false(fresh);
	assert_int_equal(a, b);
	assert_int_equal(vb_region(fake.fabric, 3, "more", 64, &c, &fresh), 0);
	assert_true(fresh);
	assert_true(vb_addr_offset(c) >= vb_addr_offset(a) + 100);
	/* The same name on another node is another region. */
	assert_int_equal(vb_region(fake.fabric, 6, "locks", 200, &c, &fresh), 0);
	assert_true(fresh);
	assert_int_equal(*(uint64_t *)vb_local(fake.fabric, a, 100), 0);
	assert_ptr_not_equal(vb_local(fake.fabric, a, 64), vb_local(fake.fabric, c, 64));
	FAKE_SAYS(vb_region(fake.fabric, 3, "locks", 101, &c, &fresh), -EINVAL, "another size");
	FAKE_SAYS(vb_region(fake.fabric, 3, "", 8, &c, &fresh), -EINVAL, "a name of 1 to");
	FAKE_SAYS(vb_region(fake.fabric, 3, "zero", 0, &c, &fresh), -EINVAL, "a size");
	FAKE_SAYS(vb_region(fake.fabric, FAKE_NODES, "x", 8, &c, &fresh), -EINVAL, "no node");
	assert_int_equal(fake.n_controls, 0);
}

static void lengths_of_names(void **state)
{
	char name[NET_REGION_NAME + 1];
	vb_addr a;
	bool fresh;

	(void)state;
	open_all();
	memset(name, 'n', sizeof(name));
	name[NET_REGION_NAME] = '\0';
	FAKE_SAYS(vb_region(fake.fabric, 0, name, 8, &a, &fresh), -EINVAL, "a name of 1 to");
	name[NET_REGION_NAME - 1] = '\0';
	assert_int_equal(vb_region(fake.fabric, 0, name, 8, &a, &fresh), 0);
	assert_int_equal(vb_region(fake.fabric, 1, name, 8, &a, &fresh), 0);
	assert_int_equal(strlen(ask_of(0).name), NET_REGION_NAME - 1);
}

static void no_room(void **state)
{
	vb_addr a;
	bool fresh;
	char name[16];

	(void)state;
	open_all();
	FAKE_SAYS(vb_region(fake.fabric, 0, "all", FAKE_NODE_BYTES, &a, &fresh), -ENOSPC,
		  "does not fit");
	FAKE_SAYS(vb_region(fake.fabric, 0, "huge", UINT64_MAX, &a, &fresh), -ENOSPC,
		  "does not fit");
	assert_int_equal(
		vb_region(fake.fabric, 0, "rest", FAKE_NODE_BYTES - NET_REGION_START, &a, &fresh),
		0);
	FAKE_SAYS(vb_region(fake.fabric, 0, "one more", 1, &a, &fresh), -ENOSPC, "does not fit");
	for (unsigned i = 0; i < NET_REGIONS; i++) {
		snprintf(name, sizeof(name), "%u", i);
		assert_int_equal(vb_region(fake.fabric, 3, name, 8, &a, &fresh), 0);
	}
	FAKE_SAYS(vb_region(fake.fabric, 3, "one more", 8, &a, &fresh), -ENOSPC, "64 regions");
	assert_int_equal(vb_region(fake.fabric, 3, "0", 8, &a, &fresh), 0);
	assert_false(fresh);
}

static void there(void **state)
{
	vb_addr a;
	bool fresh = false;
	struct ask q;

	(void)state;
	open_all();
	assert_int_equal(vb_region(fake.fabric, 4, "locks", 100, &a, &fresh), 0);
	assert_true(fresh);
	assert_int_equal(a, vb_addr_make(4, 4096));
	q = ask_of(0);
	assert_int_equal(fake.n_controls, 1);
	assert_int_equal(fake.controls[0].host, 1);
	assert_int_equal(q.node, 4);
	assert_int_equal(q.bytes, 100);
	assert_string_equal(q.name, "locks");
	peers.bend.err = -EINVAL;
	FAKE_SAYS(vb_region(fake.fabric, 4, "locks", 101, &a, &fresh), -EINVAL, "another size");
	peers.bend.err = -ENOSPC;
	FAKE_SAYS(vb_region(fake.fabric, 4, "l", 101, &a, &fresh), -ENOSPC, "does not fit");
	/* Errors are negative, and a region lies on its node. */
	peers.bend.err = 7;
	FAKE_SAYS(vb_region(fake.fabric, 4, "l", 101, &a, &fresh), -EPROTO, "asked of process 1");
	peers.bend = (struct answer){.offset = FAKE_NODE_BYTES - 100};
	FAKE_SAYS(vb_region(fake.fabric, 4, "l", 101, &a, &fresh), -EPROTO, "asked of process 1");
	peers.bend.offset = UINT64_MAX;
	FAKE_SAYS(vb_region(fake.fabric, 4, "l", 101, &a, &fresh), -EPROTO, "asked of process 1");
	assert_true(vb_list_empty(&fake.f->core->asks));
}

/* No room for the question, for as many as wait at most: put again until there is. */
static void question_finds_no_room(void **state)
{
	vb_addr a;
	bool fresh = false;

	(void)state;
	open_all();
	fake.controls_full = 64;
	assert_int_equal(vb_region(fake.fabric, 1, "locks", 100, &a, &fresh), 0);
	assert_true(fresh);
	assert_int_equal(fake.n_controls, 1);
}

/* There never is any: bounded, and said for what it is. */
static void never_any_room(void **state)
{
	vb_addr a;
	bool fresh;

	(void)state;
	open_all();
	fake.f->core->answer_ns = 30000000;
	fake.controls_full = UINT32_MAX;
	FAKE_SAYS(vb_region(fake.fabric, 1, "locks", 100, &a, &fresh), -EAGAIN,
		  "has taken no control message");
	assert_int_equal(fake.n_controls, 0);
	assert_true(vb_list_empty(&fake.f->core->asks));
}

/* Answers may be lost: the same question comes again, with its number, more and more seldom. */
static void answers_lost(void **state)
{
	vb_addr a;
	bool fresh = false;

	(void)state;
	open_all();
	peers.deaf = 2;
	assert_int_equal(vb_region(fake.fabric, 1, "locks", 100, &a, &fresh), 0);
	assert_true(fresh);
	assert_int_equal(fake.n_controls, 3);
	assert_int_equal(ask_of(0).number, ask_of(1).number);
	assert_int_equal(ask_of(0).number, ask_of(2).number);
	peers.deaf = UINT32_MAX;
	fake.f->core->answer_ns = 350000000;
	FAKE_SAYS(vb_region(fake.fabric, 1, "locks", 100, &a, &fresh), -ETIMEDOUT,
		  "has not answered");
	/* At 0, 100 and 300 ms, and a last time at the end. */
	assert_in_range(fake.n_controls, 4, 7);
	assert_true(vb_list_empty(&fake.f->core->asks));
}

/* An owner who is gone, before and while he is asked; a transport that knows it has lost him. */
static bool dies_when_asked(void)
{
	if (fake.n_controls == 1 && !fake.f->core->host[1].gone) {
		fake.n_controls++;
		/* As if by the cluster's thread, which takes no engine that is ours. */
		__atomic_store_n(&fake.f->core->host[1].gone, true, __ATOMIC_RELEASE);
		__atomic_store_n(&fake.f->core->news, true, __ATOMIC_RELEASE);
	}
	return false;
}

static unsigned passes_until_mended;

static bool mended(void)
{
	if (passes_until_mended > 0 && --passes_until_mended == 0)
		fake.control_err = 0;
	return answer_next();
}

static void owner_gone(void **state)
{
	vb_addr a;
	bool fresh;

	(void)state;
	open_all();
	fake.f->core->answer_ns = 30000000;
	fake.control_err = -VB_EPEERGONE;
	FAKE_SAYS(vb_region(fake.fabric, 2, "locks", 100, &a, &fresh), -VB_EPEERGONE, "is gone or");
	fake.f->core->answer_ns = NET_ANSWER_NS;
	fake.control_err = -ENOMEM;
	FAKE_SAYS(vb_region(fake.fabric, 2, "locks", 100, &a, &fresh), -ENOMEM,
		  "asked of process 2");
	/* A connection that is broken for a while: nothing is lost but time. */
	fake.control_err = -VB_EPEERGONE;
	fake.on_progress = mended;
	passes_until_mended = 20;
	assert_int_equal(vb_region(fake.fabric, 2, "locks", 100, &a, &fresh), 0);
	assert_true(fresh);
	fake.n_controls = 0;
	fake.on_progress = dies_when_asked;
	FAKE_SAYS(vb_region(fake.fabric, 1, "locks", 100, &a, &fresh), -VB_EPEERGONE, "is gone");
	fake.n_controls = 0;
	FAKE_SAYS(vb_region(fake.fabric, 1, "locks", 100, &a, &fresh), -VB_EPEERGONE, "is gone");
	assert_int_equal(fake.n_controls, 0);
	assert_true(vb_list_empty(&fake.f->core->asks));
}

/* The others' questions.  One that is repeated gets the same answer: who made it hears "fresh"
 * again, and nobody else does. */
static void asked(void **state)
{
	struct answer a, b;
	vb_addr mine;
	bool fresh;

	(void)state;
	open_all();
	fake.on_progress = NULL;
	a = ask_us(1, 3, "locks", 100, 17);
	assert_int_equal(a.err, 0);
	assert_int_equal(a.fresh, 1);
	b = ask_us(1, 3, "locks", 100, 17);
	assert_int_equal(b.fresh, 1);
	assert_int_equal(b.offset, a.offset);
	assert_int_equal(ask_us(1, 3, "locks", 100, 18).fresh, 0);
	assert_int_equal(ask_us(2, 3, "locks", 100, 17).fresh, 0);
	assert_int_equal(vb_region(fake.fabric, 3, "locks", 100, &mine, &fresh), 0);
	assert_false(fresh);
	assert_int_equal(vb_addr_offset(mine), a.offset);
	assert_int_equal(ask_us(1, 3, "locks", 99, 19).err, -EINVAL);
	assert_int_equal(ask_us(1, 3, "big", FAKE_NODE_BYTES, 20).err, -ENOSPC);
	assert_int_equal(ask_us(1, 3, "big", UINT64_MAX, 21).err, -ENOSPC);
	/* Of other hosts' nodes and of none, without a name or an end of it, or a size. */
	assert_int_equal(ask_us(1, 4, "locks", 100, 22).err, -EPROTO);
	assert_int_equal(ask_us(1, FAKE_NODES + 2, "locks", 100, 23).err, -EPROTO);
	assert_int_equal(ask_us(1, UINT16_MAX, "locks", 100, 24).err, -EPROTO);
	assert_int_equal(ask_us(1, 3, "", 100, 25).err, -EPROTO);
	assert_int_equal(ask_us(1, 3, "zero", 0, 26).err, -EPROTO);
	assert_int_equal(ask_us(1, 3,
				"a name without an end a name without an end a name without an end "
				"a name without an end",
				8, 27)
				 .err,
			 -EPROTO);
}

/* ---- all of a node ---- */

static struct named list_us(uint32_t from, uint16_t node, uint64_t after, uint32_t number)
{
	struct ask q = {
		.kind = LIST, .version = VERSION, .node = node, .number = number, .bytes = after};
	struct named a;
	unsigned before = fake.n_controls;

	came(from, &q, sizeof(q));
	assert_int_equal(fake.n_controls, before + 1);
	assert_int_equal(fake.controls[before].host, from);
	assert_int_equal(fake.controls[before].bytes, sizeof(a));
	memcpy(&a, fake.controls[before].data, sizeof(a));
	assert_int_equal(a.kind, NAMED);
	assert_int_equal(a.number, number);
	return a;
}

static void listed_to_others(void **state)
{
	struct vb_region_info all[3] = {0};
	struct named a;
	vb_addr at;
	bool fresh;

	(void)state;
	open_all();
	fake.on_progress = NULL;
	assert_int_equal(list_us(1, 3, 0, 1).count, 0);
	assert_int_equal(vb_region(fake.fabric, 3, "locks", 100, &at, &fresh), 0);
	assert_int_equal(vb_region(fake.fabric, 3, "more", 64, &at, &fresh), 0);
	a = list_us(1, 3, 0, 2);
	assert_int_equal(a.err, 0);
	assert_int_equal(a.count, 2);
	assert_string_equal(a.name, "locks");
	a = list_us(1, 3, a.id, 2);
	assert_int_equal(a.count, 1);
	assert_int_equal(a.bytes, 64);
	assert_string_equal(a.name, "more");
	assert_int_equal(vb_regions(fake.fabric, 3, all, 1), 2);
	assert_string_equal(all[0].name, "locks");
	assert_int_equal(all[0].bytes, 100);
	assert_string_equal(all[1].name, "");
	a = list_us(2, 3, UINT64_MAX, 3);
	assert_int_equal(a.count, 0);
	assert_string_equal(a.name, "");
	/* Who is in the middle of the list misses none when one that he has had goes, and the last takes its place. */
	a = list_us(1, 3, 0, 4);
	assert_int_equal(vb_region(fake.fabric, 3, "most", 64, &at, &fresh), 0);
	assert_int_equal(vb_regions(fake.fabric, 3, all, 3), 3);
	assert_int_equal(vb_region_remove(fake.fabric, 3, a.id), 0);
	a = list_us(1, 3, a.id, 5);
	assert_int_equal(a.count, 2);
	assert_string_equal(a.name, "more");
	a = list_us(1, 3, a.id, 6);
	assert_int_equal(a.count, 1);
	assert_string_equal(a.name, "most");
	/* Of other hosts' nodes, and of none. */
	assert_int_equal(list_us(1, 4, 0, 4).err, -EPROTO);
	assert_int_equal(list_us(1, UINT16_MAX, 0, 5).err, -EPROTO);
}

/* What the owner of node 4 says when it is asked for its names. */
static struct named says;

static bool name_next(void)
{
	static const char *const names[] = {"locks", "more", "most"};
	struct named a = says;
	struct answer other = {.kind = ANSWER, .version = VERSION, .offset = 64};
	struct ask q;

	if (peers.answered == fake.n_controls)
		return false;
	memcpy(&q, fake.controls[peers.answered].data, sizeof(q));
	assert_int_equal(q.kind, LIST);
	assert_int_equal(q.node, 4);
	a.kind = NAMED;
	a.version = VERSION;
	a.number = other.number = q.number;
	a.bytes = 10 + q.bytes;
	a.id = q.bytes + 1;
	if (a.name[0] == '\0' && q.bytes < a.count)
		snprintf(a.name, sizeof(a.name), "%s", names[q.bytes]);
	if (a.count <= VB_ARRAY_SIZE(names))
		a.count -= (uint32_t)q.bytes;
	/* To another question, or by another host: as if it had not come. */
	came_held(1, &other, sizeof(other));
	came_held(2, &a, sizeof(a));
	came_held(fake.controls[peers.answered++].host, &a, sizeof(a));
	return true;
}

static void list_of_others(void **state)
{
	struct vb_region_info all[3] = {0};

	(void)state;
	open_all();
	fake.on_progress = name_next;
	says = (struct named){.count = 3};
	assert_int_equal(vb_regions(fake.fabric, 4, all, 2), 3);
	assert_string_equal(all[1].name, "more");
	assert_string_equal(all[2].name, "");
	assert_int_equal(fake.n_controls, 2);
	assert_int_equal(vb_regions(fake.fabric, 4, all, 3), 3);
	assert_string_equal(all[0].name, "locks");
	assert_int_equal(all[2].bytes, 12);
	assert_string_equal(all[2].name, "most");
	says = (struct named){.count = 0};
	assert_int_equal(vb_regions(fake.fabric, 4, all, 3), 0);
	/* What cannot be. */
	says = (struct named){.count = NET_REGIONS + 1};
	FAKE_SAYS(vb_regions(fake.fabric, 4, all, 3), -EPROTO, "asked of process 1");
	says = (struct named){.count = 3};
	memset(says.name, 'n', sizeof(says.name));
	FAKE_SAYS(vb_regions(fake.fabric, 4, all, 3), -EPROTO, "asked of process 1");
	says = (struct named){.count = 3, .err = 7};
	FAKE_SAYS(vb_regions(fake.fabric, 4, all, 3), -EPROTO, "asked of process 1");
	fake.on_progress = NULL;
	fake.f->core->answer_ns = 30000000;
	FAKE_SAYS(vb_regions(fake.fabric, 4, all, 3), -ETIMEDOUT, "has not answered");
	assert_true(vb_list_empty(&fake.f->core->asks));
}

/* An answer that finds no room is lost; the question comes again and is answered as the first. */
static void answer_finds_no_room(void **state)
{
	struct ask q = {.kind = ASK,
			.version = VERSION,
			.node = 0,
			.number = 5,
			.bytes = 100,
			.name = "locks"};

	(void)state;
	open_all();
	fake.on_progress = NULL;
	fake.controls_full = 1;
	came(2, &q, sizeof(q));
	assert_int_equal(fake.n_controls, 0);
	assert_int_equal(ask_us(2, 0, "locks", 100, 5).fresh, 1);
}

/* Answers that nobody waits for, from the wrong host, of the wrong size: as if they had not
 * come. */
static bool strangers_first(void)
{
	struct answer a = {.kind = ANSWER, .version = VERSION, .fresh = 1, .offset = 64};
	struct ask q;

	if (peers.once || fake.n_controls == 0)
		return answer_next();
	peers.once = true;
	q = ask_of(0);
	a.number = q.number;
	came_held(2, &a, sizeof(a));
	a.number++;
	came_held(1, &a, sizeof(a));
	return true;
}

static void strange_answers(void **state)
{
	struct answer a = {.kind = ANSWER, .version = VERSION, .number = 1};
	uint8_t noise[NET_CONTROL_MAX] = {0};
	const struct net_core *core;
	uint64_t strange;
	vb_addr at;
	bool fresh;

	(void)state;
	open_all();
	came(1, &a, sizeof(a));
	core = net_of(fake.fabric)->core;
	strange = core->meaningless;
	for (size_t n = 1; n <= sizeof(noise); n++) {
		for (uint8_t kind = 0; kind < 6; kind++) {
			noise[0] = kind;
			/* A version that there is not, whatever the size. */
			noise[1] = VERSION + 1;
			vb_log_capture_begin(fake_log, sizeof(fake_log));
			came(1, noise, n);
			vb_log_capture_end();
			assert_int_equal(core->meaningless, ++strange);
			/* It is said, and not again and again. */
			assert_true((strstr(fake_log, "means nothing") != NULL) == (strange == 1));
			fake_log[0] = '\0';
			if (n == 2) {
				net_of(fake.fabric)->core->meaningless_again_ns = 0;
				vb_log_capture_begin(fake_log, sizeof(fake_log));
				came(1, noise, n);
				vb_log_capture_end();
				strange++;
				assert_non_null(strstr(fake_log, "(version 3, ours is 2)"));
				fake_log[0] = '\0';
			}
			if (n == sizeof(struct ask) || n == sizeof(struct answer) ||
			    n == sizeof(struct named))
				continue;
			noise[1] = VERSION;
			came(1, noise, n);
			assert_int_equal(core->meaningless, ++strange);
		}
	}
	assert_int_equal(fake.n_controls, 0);
	fake.on_progress = strangers_first;
	assert_int_equal(vb_region(fake.fabric, 1, "locks", 100, &at, &fresh), 0);
	assert_int_equal(vb_addr_offset(at), 4096);
}

/* Several tasks ask at once, and each gets its own answer. */
#define ASKERS 20u

struct asker {
	unsigned i;
	vb_addr at;
	int rc;
};

static void asker_body(void *arg)
{
	struct asker *k = arg;
	char name[16];
	bool fresh;

	snprintf(name, sizeof(name), "%u", k->i);
	k->rc = vb_region(fake.fabric, 1, name, 8, &k->at, &fresh);
}

static bool answer_all_backwards(void)
{
	if (fake.n_controls < ASKERS || peers.once)
		return false;
	peers.once = true;
	for (unsigned i = ASKERS; i-- > 0;) {
		struct ask q = ask_of(i);
		struct answer a = {.kind = ANSWER,
				   .version = VERSION,
				   .number = q.number,
				   .offset = 64ull * (1 + (unsigned)atoi(q.name))};

		came_held(1, &a, sizeof(a));
	}
	return true;
}

static void many_ask(void **state)
{
	struct asker k[ASKERS];
	struct vb_task *t;

	(void)state;
	open_all();
	fake.on_progress = answer_all_backwards;
	for (unsigned i = 0; i < ASKERS; i++) {
		k[i] = (struct asker){.i = i, .rc = 1};
		assert_int_equal(vb_task_spawn(vb_sched_self(), asker_body, &k[i], NULL, &t), 0);
	}
	assert_int_equal(vb_sched_run(vb_sched_self(), NULL, VB_FOREVER), 0);
	for (unsigned i = 0; i < ASKERS; i++) {
		assert_int_equal(k[i].rc, 0);
		assert_int_equal(vb_addr_offset(k[i].at), 64ull * (1 + i));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		FAKE(here),
		FAKE(lengths_of_names),
		FAKE(no_room),
		FAKE(there),
		FAKE(question_finds_no_room),
		FAKE(never_any_room),
		FAKE(answers_lost),
		FAKE(owner_gone),
		FAKE(asked),
		FAKE(answer_finds_no_room),
		FAKE(strange_answers),
		FAKE(listed_to_others),
		FAKE(list_of_others),
		FAKE(many_ask),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
