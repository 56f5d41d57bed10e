/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is known of the names of locks by all that anybody was told, and whether what somebody is told next
 * fits: one lock for each name, one name for each lock, and nothing is forgotten.
 */
#ifndef NAMES_TOLD_H
#define NAMES_TOLD_H

#include "sim_test.h"

#include <errno.h>
#include <stdio.h>

#include <verbena/names.h>

#include "lock/lock.h"
#include "names_twins.h"

#define NAMES_MAX 12u
#define LOCKS_MAX 12u
#define TWINS     3u /* of a family */
#define UNKNOWN   UINT64_MAX

enum call { CALL_END, CALL_LOCK, CALL_FIND };

struct told {
	char name[NAMES_MAX][TWIN_BYTES];
	unsigned n_names;
	uint64_t locks;
	uint64_t lock_of[NAMES_MAX]; /* UNKNOWN */
	uint64_t name_of[LOCKS_MAX];
	/* Nothing has befallen anybody: every answer is to be had. */
	bool whole;
	vb_addr place;
	uint32_t place_bytes;
	struct vb_fabric *f;
	/* The first thing that is wrong. */
	const char *rule;
	char story[200];
};

static void told_init(struct told *t, struct vb_fabric *f, unsigned names, unsigned family,
		      uint64_t locks)
{
	*t = (struct told){.n_names = names, .locks = locks, .f = f};
	for (unsigned i = 0; i < NAMES_MAX; i++)
		t->lock_of[i] = UNKNOWN;
	for (unsigned i = 0; i < LOCKS_MAX; i++)
		t->name_of[i] = UNKNOWN;
	for (unsigned i = 0; i < names; i++)
		twin_name(family + i / TWINS, i % TWINS, t->name[i]);
}

static void VB_PRINTF(3, 4) blame(struct told *t, const char *rule, const char *fmt, ...)
{
	va_list ap;

	if (t->rule != NULL)
		return;
	t->rule = rule;
	va_start(ap, fmt);
	vsnprintf(t->story, sizeof(t->story), fmt, ap);
	va_end(ap);
}

static void name_has(struct told *t, unsigned name, uint64_t lock)
{
	if (lock >= t->locks)
		blame(t, "no-lock", "name %u has lock %llu\n", name, (unsigned long long)lock);
	else if (t->lock_of[name] != UNKNOWN && t->lock_of[name] != lock)
		blame(t, "two-locks", "name %u has locks %llu and %llu\n", name,
		      (unsigned long long)t->lock_of[name], (unsigned long long)lock);
	else if (t->name_of[lock] != UNKNOWN && t->name_of[lock] != name)
		blame(t, "two-names", "lock %llu has names %llu and %u\n", (unsigned long long)lock,
		      (unsigned long long)t->name_of[lock], name);
	if (t->rule != NULL)
		return;
	t->lock_of[name] = lock;
	t->name_of[lock] = name;
}

static uint64_t word_of_place(const struct told *t, uint64_t lock, uint16_t servers)
{
	return peek(t->f, vb_addr_make((uint16_t)(lock % servers), vb_addr_offset(t->place)) +
				  lock / servers * t->place_bytes);
}

static bool is_full(const struct told *t, uint16_t servers)
{
	for (uint64_t l = 0; l < t->locks; l++)
		if (word_of_place(t, l, servers) == 0)
			return false;
	return true;
}

/* knew: somebody had been told of the name when the call began. */
static void answered(struct told *t, enum call call, unsigned name, bool knew, int err,
		     uint64_t lock, uint16_t servers)
{
	if (err == 0)
		name_has(t, name, lock);
	else if ((err == -ENOENT && call == CALL_FIND) || (err == -ENOSPC && call == CALL_LOCK)) {
		if (knew)
			blame(t, "forgotten", "name %u had lock %llu, and now: %s\n", name,
			      (unsigned long long)t->lock_of[name], vb_strerror(err));
		if (err == -ENOSPC && !is_full(t, servers))
			blame(t, "not-full", "name %u is refused, and there is room\n", name);
	} else if ((err != -VB_EUNKNOWN && err != -VB_EPEERGONE) || t->whole)
		blame(t, "answer", "name %u: %d (%s)\n", name, err, vb_strerror(err));
}

static int ask(struct told *t, struct vb_names *d, struct vb_lock_client *me, enum call call,
	       unsigned name)
{
	const bool knew = t->lock_of[name] != UNKNOWN;
	uint64_t lock = UNKNOWN;
	int err = call == CALL_LOCK ? vb_names_lock(d, me, t->name[name], TWIN_BYTES, &lock)
				    : vb_names_find(d, me, t->name[name], TWIN_BYTES, &lock);

	if (vb_sim_ep_dead(me->ep))
		vb_task_die();
	if (err != 0 && lock != UNKNOWN)
		blame(t, "answer", "name %u: an error and a lock\n", name);
	answered(t, call, name, knew, err, lock, me->space->servers);
	return err;
}

static int listed(void *user, uint64_t lock, const void *name, size_t bytes)
{
	struct told *t = user;

	for (unsigned i = 0; i < t->n_names; i++) {
		if (bytes != TWIN_BYTES || memcmp(name, t->name[i], bytes) != 0)
			continue;
		name_has(t, i, lock);
		return 0;
	}
	blame(t, "nobodys-name", "lock %llu has a name that nobody asked for\n",
	      (unsigned long long)lock);
	return 0;
}

/* Somebody new, whom nothing befalls, is told the same, and that every name that was ever told is there. */
static void inherit(struct told *t, struct vb_names *d, struct vb_lock_client *heir)
{
	struct told before = *t;
	char name[TWIN_BYTES];
	size_t bytes;

	t->whole = true;
	for (unsigned i = 0; i < t->n_names; i++)
		if (ask(t, d, heir, CALL_FIND, i) == -ENOENT && before.lock_of[i] != UNKNOWN)
			blame(t, "forgotten", "name %u is not found\n", i);
	if (vb_names_each(d, heir, listed, t) != 0)
		blame(t, "answer", "the names cannot be listed\n");
	for (unsigned i = 0; i < t->n_names; i++)
		(void)ask(t, d, heir, CALL_LOCK, i);
	for (uint64_t l = 0; l < t->locks; l++) {
		const uint64_t of = t->name_of[l];
		int err = vb_names_of(d, heir, l, name, sizeof(name), &bytes);

		if (of == UNKNOWN ? err != -ENOENT
				  : err != 0 || bytes != TWIN_BYTES ||
					    memcmp(name, t->name[of], bytes) != 0)
			blame(t, "answer", "lock %llu does not say which name it has\n",
			      (unsigned long long)l);
	}
}

static void open_names(struct told *t, struct vb_lock_space *space, uint64_t locks,
		       struct vb_names **out)
{
	/* It remembers one name, the first one. */
	const struct vb_names_params p = {.names = locks, .bytes = 20, .known = 1};
	bool fresh;

	assert_int_equal(vb_names_open(space, &p, out), 0);
	if (t->place != 0)
		return;
	t->place_bytes = 8 * (1 + 3);
	assert_int_equal(vb_region(t->f, 0, "name:locks",
				   VB_CACHELINE + (locks + space->servers - 1) / space->servers *
							  t->place_bytes,
				   &t->place, &fresh),
			 0);
	assert_false(fresh);
	t->place += VB_CACHELINE;
}

#endif
