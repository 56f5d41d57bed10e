/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cuckoo index under lookups that fall between the single stores of its owner.
 *
 * The index and what looks in it from afar are compiled once more here, so that the input decides
 * where one gives way to the other: before each store of the owner, before each word that a READ
 * takes, and between the words of a view that two readers share.  A READ takes its words one by one
 * in any order.
 *
 * Whatever comes: after each operation the index has what it should have; after each single store a
 * key that is to be there is in one of its slots; a lookup finds a key that was there from its
 * begin to its end, at its own address, and does not find one that was not there at any time in
 * between (unless it was when the index became larger: who does not know the larger one finds it in
 * the one before).
 *
 * Input: slots, how often the index may become larger, and then bytes that are taken by whoever
 * needs one: operations by the owner, keys and order of words by readers, and by all how long they
 * go on.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "store/store.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define INPUT_MAX   4096u
#define KEYS        32u
#define SLOTS_MAX   32u
#define RESIZES_MAX 4u
#define READERS     2u
#define FINDS_MAX   4u
#define NODE        1u
#define HEADER_AT   128u
#define INDEX_AT    256u
#define SEGMENT     (INDEX_AT + (SLOTS_MAX << (RESIZES_MAX + 1)) * sizeof(struct vb_slot))

static void store_word(uint64_t *at, uint64_t w);
static void give_way(void);

#define __atomic_store_n(at, w, order) store_word(at, w)
#include "store/index.c"
#undef __atomic_store_n
#define __atomic_store_n(at, w, order) (give_way(), (void)(*(at) = (w)))
#define __atomic_load_n(at, order)     (give_way(), *(at))
#include "store/find.c"
#undef __atomic_store_n
#undef __atomic_load_n

/* What only compares with what should be tells the fuzzer nothing, and would take most of its
 * time. */
#ifdef __clang__
#define UNSEEN __attribute__((no_sanitize("coverage"), noinline))
#else
#define UNSEEN
#endif

static void must(bool ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "fuzz_store_index: %s\n", what);
	abort();
}

/* ---- input ---- */

static const uint8_t *input, *input_end;
static unsigned patience; /* steps until somebody else's turn */

static uint8_t take(void)
{
	return input < input_end ? *input++ : 0;
}

/* When the input is over nobody is interrupted. */
static void give_way(void)
{
	if (patience == 0) {
		if (input == input_end)
			return;
		vb_task_yield();
		patience = take() % 24;
		return;
	}
	patience--;
}

/* ---- what should be ---- */

struct known {
	bool there, busy;
	bool kept;        /* it was there when the index became larger */
	uint64_t changes; /* begun */
};

struct generation {
	uint64_t at, slots;
	const struct vb_slot *slot[KEYS][VB_INDEX_WAYS]; /* where each key may be */
};

static struct {
	_Alignas(16) char segment[SEGMENT];
	struct vb_index index;
	struct vb_fabric fabric;
	struct vb_store store;
	struct vb_table_node node[NODE + 1];
	struct vb_table table;
	struct known key[KEYS];
	uint64_t ref[KEYS];
	unsigned present;
	struct generation generation[RESIZES_MAX + 1];
	unsigned generations, most;
	uint64_t used;
	bool over;
} w;

/* On the one node that has the table; NODE + 1 of them are there. */
static uint64_t key_of(unsigned number)
{
	return number * (NODE + 1) * 0x4cf5ad432745937full + NODE;
}

static uint64_t offset_of(unsigned number)
{
	return 4096 + number * 64;
}

static struct vb_table_header *header(void)
{
	return (struct vb_table_header *)(w.segment + HEADER_AT);
}

static void add_generation(uint64_t slots)
{
	struct generation *g = &w.generation[w.generations++];

	*g = (struct generation){.at = w.used, .slots = slots};
	w.used += slots * sizeof(struct vb_slot);
	for (unsigned i = 0; i < KEYS; i++)
		for (unsigned way = 0; way < VB_INDEX_WAYS; way++)
			g->slot[i][way] = (const struct vb_slot *)(w.segment + g->at) +
					  vb_index_slot_of(key_of(i), way, slots);
}

static uint64_t more(void *ctx, uint64_t generation, uint64_t slots)
{
	must(generation >= w.generations && slots == w.generation[0].slots << generation,
	     "asked for an index of another size");
	if (w.generations > w.most)
		return 0;
	add_generation(slots);
	return w.generation[w.generations - 1].at;
}

/* The index that the header names, if its words are of one index. */
UNSEEN static const struct generation *current(void)
{
	for (unsigned i = 0; i < w.generations; i++)
		if (header()->index_at == w.generation[i].at &&
		    header()->slots == w.generation[i].slots)
			return &w.generation[i];
	return NULL;
}

UNSEEN static bool somewhere(const struct generation *g, unsigned number)
{
	for (unsigned way = 0; way < VB_INDEX_WAYS; way++)
		if (g->slot[number][way]->key == key_of(number) &&
		    g->slot[number][way]->ref == w.ref[number])
			return true;
	return false;
}

UNSEEN static void check_nowhere(void)
{
	const struct generation *g = current();

	for (unsigned i = 0; g != NULL && i < KEYS; i++)
		if (w.key[i].there && !w.key[i].busy)
			must(somewhere(g, i), "a key is nowhere");
}

static void store_word(uint64_t *at, uint64_t word)
{
	give_way();
	*at = word;
	check_nowhere();
}

/* ---- the owner ---- */

UNSEEN static void check_all(unsigned number)
{
	const struct generation *g = current();
	const struct vb_slot *s = (const struct vb_slot *)(w.segment + header()->index_at);
	unsigned taken = 0;

	must(vb_index_find(&w.index, key_of(number)) ==
		     (w.key[number].there ? offset_of(number) : 0),
	     "the owner does not find what should be there");
	must(g != NULL, "a header of two indexes");
	for (unsigned i = 0; i < KEYS; i++)
		must(somewhere(g, i) == w.key[i].there, "keys are not what they should be");
	for (uint64_t i = 0; i < header()->slots; i++)
		taken += s[i].ref != 0;
	must(taken == w.present && header()->keys == w.present, "keys that are there twice");
	must((header()->moves & 1) == 0, "moves that never end");
}

static void keep_all(void)
{
	for (unsigned i = 0; i < KEYS; i++)
		w.key[i].kept |= w.key[i].there;
}

static void insert(unsigned number)
{
	struct known *k = &w.key[number];
	uint64_t resizes = w.index.resizes;
	int err;

	k->busy = true;
	k->changes++;
	err = vb_index_insert(&w.index, key_of(number), offset_of(number));
	k->busy = false;
	must(err == (k->there ? -EEXIST : 0) || (err == -ENOSPC && !k->there), "a wrong answer");
	if (w.index.resizes != resizes)
		keep_all();
	if (err == 0) {
		k->there = true;
		w.present++;
	}
}

static void delete (unsigned number)
{
	struct known *k = &w.key[number];

	k->busy = true;
	k->changes++;
	must(vb_index_delete(&w.index, key_of(number)) == k->there, "deleted what was not there");
	k->busy = false;
	w.present -= k->there;
	k->there = false;
}

static void own(void)
{
	while (input < input_end) {
		uint8_t op = take();

		if (op & 0x60)
			insert(op % KEYS);
		else
			delete (op % KEYS);
		check_all(op % KEYS);
		if (op & 0x80)
			give_way();
	}
}

/* ---- readers ---- */

/* The words of the READs that were asked for. */
static struct asked {
	uint64_t *to;
	uint64_t offset;
} asked[READERS][2 * FIND_MAX];

void vb_acc_read_slow(struct vb_acc *a, vb_addr at, void *buf, uint32_t len)
{
	uint64_t offset = vb_addr_offset(at);

	must(vb_addr_node(at) == NODE, "a READ of another node");
	if (offset > SEGMENT || len > SEGMENT - offset) {
		a->err = -VB_EACCESS;
		return;
	}
	for (uint32_t i = 0; i < len; i += 8)
		asked[a->node][a->n++] = (struct asked){(uint64_t *)((char *)buf + i), offset + i};
}

int vb_acc_go(struct vb_acc *a)
{
	struct asked *words = asked[a->node];
	unsigned n = a->n, order = take();
	int err = a->err;

	/* Forwards for 0: what remains is taken from its end, its begin or its middle. */
	for (; n > 0; n--, order = order >> 2 | order << 6) {
		unsigned at = order % 4 == 0 ? 0 : order % 4 == 1 ? n - 1 : (order % 4 + n) % n;

		give_way();
		memcpy(words[at].to, w.segment + words[at].offset, 8);
		memmove(&words[at], &words[at + 1], (n - 1 - at) * sizeof(words[0]));
	}
	a->n = 0;
	a->err = 0;
	return err;
}

struct expected {
	struct vb_find f;
	unsigned number;
	struct known before;
};

static void begin_find(struct expected *x)
{
	x->number = take() % KEYS;
	x->before = w.key[x->number];
	x->f = (struct vb_find){.table = &w.table, .key = key_of(x->number)};
}

static void check_find(const struct expected *x)
{
	const struct known *now = &w.key[x->number];
	bool still = !x->before.busy && now->changes == x->before.changes;

	if (x->f.at == 0)
		must(!still || !x->before.there, "a key that is there was not found");
	else
		must(x->f.at == vb_addr_make(NODE, offset_of(x->number)), "a wrong address");
	if (x->f.at != 0 && still)
		must(x->before.there || now->kept, "a key that is not there was found");
}

static void reader(void *arg)
{
	struct vb_acc *a = arg;
	struct expected x[FINDS_MAX];
	struct vb_find *f[FINDS_MAX];

	while (!w.over) {
		unsigned n = 1 + take() % FINDS_MAX;
		for (unsigned i = 0; i < n; i++) {
			begin_find(&x[i]);
			f[i] = &x[i].f;
		}
		must(vb_store_find(a, f, n) == 0, "a lookup failed");
		for (unsigned i = 0; i < n; i++)
			check_find(&x[i]);
		vb_task_yield();
	}
}

/* ---- one run ---- */

static void set_up(void)
{
	struct vb_table_node *n = &w.node[NODE];

	memset(&w, 0, sizeof(w));
	w.used = INDEX_AT;
	add_generation(1 + take() % SLOTS_MAX);
	w.most = take() % (RESIZES_MAX + 1);
	for (unsigned i = 0; i < KEYS; i++)
		w.ref[i] = vb_index_ref(key_of(i), offset_of(i));
	w.index = (struct vb_index){.header = header(), .segment = w.segment, .more = more};
	header()->index_at = INDEX_AT;
	header()->slots = w.generation[0].slots;
	w.fabric.nodes = NODE + 1;
	w.store.fabric = &w.fabric;
	w.store.nodes = NODE + 1;
	w.table = (struct vb_table){
		.store = &w.store, .name = "t", .partition = VB_PARTITION_MOD, .node = w.node};
	n->header = vb_addr_make(NODE, HEADER_AT);
	n->view = (struct vb_index_view){.at = vb_addr_make(NODE, INDEX_AT),
					 .slots = header()->slots};
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct vb_env_ops virtual = {.name = "virtual", .is_virtual = true};
	static const struct vb_fabric_ops none = {.name = "none"};
	static struct vb_ep ep[READERS];
	static struct vb_acc acc[READERS];
	static struct vb_sched *sched;
	struct vb_task *t;

	if (sched == NULL)
		must(vb_sched_create(&virtual, NULL, &sched) == 0, "no scheduler");
	if (size > INPUT_MAX)
		return 0;
	input = data;
	input_end = data + size;
	patience = 0;
	set_up();
	for (unsigned i = 0; i < READERS; i++) {
		ep[i] = (struct vb_ep){.fabric = &w.fabric, .ops = &none, .sched = sched};
		acc[i] = (struct vb_acc){.ep = &ep[i], .node = (uint16_t)i};
		must(vb_task_spawn(sched, reader, &acc[i], NULL, &t) == 0, "no task");
	}
	own();
	w.over = true;
	must(vb_sched_run(sched, NULL, VB_FOREVER) == 0, "a reader that never ends");
	return 0;
}
