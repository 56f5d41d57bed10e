/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The processes of scripts/day.sh, which is the way to run them:
 *
 *	day spaces                                      what the servers serve, as words of `verbena serve`
 *	day try BOARD                                   the judge finds what it is there for
 *	day make BOARD                                  the file that all share (day.h)
 *	day crowd BOARD SERVERS KEY MOST FIRST SEED     clients that come and go, at most so many
 *	day tell BOARD rest|work|over                   to all crowds
 *	day end BOARD SERVERS KEY                       when all have left: every lock can be had, nothing was lost
 *	day show BOARD                                  the counts, in a line; status 1 if anything was found
 */
#include "day.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "fabric/fabric.h"
#include "lock/lock.h"

struct board *day_board(const char *path, bool make)
{
	int fd = open(path, O_RDWR | O_CLOEXEC | (make ? O_CREAT | O_EXCL : 0), 0600);
	void *b;

	if (fd < 0 || (make && ftruncate(fd, sizeof(struct board)) != 0)) {
		perror(path);
		exit(2);
	}
	b = mmap(NULL, sizeof(struct board), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (b == MAP_FAILED) {
		perror(path);
		exit(2);
	}
	return b;
}

void day_found(struct board *b, const char *fmt, ...)
{
	char text[400];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	add(&b->count.findings);
	fprintf(stderr, "FOUND at %.3f s, process %d: %s\n", (double)day_now() / 1e9, (int)getpid(),
		text);
}

/* ---- what a client opens ---- */

struct vb_lock_space_params day_space(unsigned which)
{
	static const char *const lock[DAY_SPACES] = {"dslr", "shiftlock", "table", "rpc",
						     "traditional"};
	static const char *const name[DAY_SPACES] = {"a", "b", "c", "d", "e"};

	return (struct vb_lock_space_params){
		.lock = lock[which],
		.name = name[which],
		.locks = DAY_LOCKS,
		.servers = 3,
		.lease_ns = DAY_LEASE_NS,
		.drift_ppm = DAY_DRIFT,
		.fencing = true,
	};
}

void day_leave(struct life *l, struct day_client *c)
{
	day_call(l, "leave", 30000 * MS);
	if (c->me != NULL)
		vb_lock_client_close(c->me);
	if (c->space != NULL)
		vb_lock_space_close(c->space);
	if (c->f != NULL)
		vb_fabric_close(c->f);
	day_back(l);
	*c = (struct day_client){.which = c->which};
}

int day_come(struct board *b, struct life *l, struct day_client *c, const char *servers,
	     const char *key, unsigned home)
{
	struct vb_lock_space_params p = day_space(c->which);
	char options[600];
	int err;

	snprintf(options, sizeof(options), "servers=%s,key=%s,retry=50ms,patience=20s", servers,
		 key);
	day_call(l, "vb_fabric_open", 60000 * MS);
	err = vb_fabric_open(&(struct vb_fabric_params){.fabric = "tcp", .options = options},
			     &c->f);
	if (err == 0) {
		day_call(l, "vb_lock_space_open", 60000 * MS);
		err = vb_lock_space_open(c->f, &p, &c->space);
	}
	if (err == 0) {
		day_call(l, "vb_lock_client_open", 30000 * MS);
		err = vb_lock_client_open(c->space, (uint16_t)(home % p.servers), &c->me);
	}
	day_back(l);
	if (err != 0 && err != -ETIMEDOUT && err != -VB_EPEERGONE && err != -VB_EUNKNOWN &&
	    err != -EAGAIN)
		day_found(b, "a client cannot come: %s", vb_strerror(err));
	if (err != 0)
		day_leave(l, c);
	return err;
}

/* Of each space, a word for each lock, on the lock's server. */
static int find_word(struct day_client *c, uint64_t lock, vb_addr *at)
{
	uint16_t node = (uint16_t)(lock % 3);
	char name[16];
	bool fresh;
	int err = 0;

	snprintf(name, sizeof(name), "day-%u", c->which);
	if (c->word[node] == 0)
		err = vb_region(c->f, node, name, DAY_LOCKS * sizeof(uint64_t), &c->word[node],
				&fresh);
	*at = c->word[node] + lock * sizeof(uint64_t);
	if (err != 0)
		c->word[node] = 0;
	return err;
}

int day_count(struct board *b, struct day_client *c, const struct vb_grant *g)
{
	struct watched *w = &b->lock[c->which][g->lock];
	uint64_t old;
	vb_addr at;
	int err = find_word(c, g->lock, &at);

	if (err != 0)
		return err;
	add(&w->begun);
	err = vb_faa64(c->me->ep, at, 1, &old);
	if (err == 0)
		add(&w->done);
	return err;
}

int day_counted(struct day_client *c, uint64_t lock, uint64_t *value)
{
	vb_addr at;
	int err = find_word(c, lock, &at);

	return err != 0 ? err : vb_faa64(c->me->ep, at, 0, value);
}

/* ---- the judge ---- */

/* Whose lease is over for long has left its entry behind. */
static struct entry *take_entry(struct board *b, struct watched *w, uint64_t now, uint64_t *owner)
{
	*owner = add(&b->owners);
	for (unsigned i = 0; i < DAY_ENTRIES; i++) {
		struct entry *e = &w->entry[i];
		uint64_t was = get(&e->owner);

		if (was != 0 && (get(&e->ready) != was || get(&e->until_ns) + 1000 * MS > now))
			continue;
		if (__atomic_compare_exchange_n(&e->owner, &was, *owner, false, __ATOMIC_SEQ_CST,
						__ATOMIC_SEQ_CST))
			return e;
	}
	return NULL;
}

static void judge(struct board *b, const struct day_client *c, const struct vb_grant *g,
		  const struct entry *me)
{
	const struct watched *w = &b->lock[c->which][g->lock];

	for (unsigned i = 0; i < DAY_ENTRIES; i++) {
		const struct entry *e = &w->entry[i];
		uint64_t owner = get(&e->owner), ready = get(&e->ready), from = get(&e->granted_ns),
			 until = get(&e->until_ns), mode = get(&e->mode), pid = get(&e->pid);

		if (e == me || owner == 0 || ready != owner || get(&e->owner) != owner)
			continue;
		if (mode == VB_SHARED && g->mode == VB_SHARED)
			continue;
		if ((from > me->granted_ns ? from : me->granted_ns) <
		    (until < me->until_ns ? until : me->until_ns))
			day_found(b,
				  "%s %" PRIu64
				  " twice: mode %u to %d from %.6f s to %.6f s, mode %u to %d "
				  "from %.6f s to %.6f s",
				  day_space(c->which).lock, g->lock, (unsigned)mode, (int)pid,
				  (double)from / 1e9, (double)until / 1e9, (unsigned)g->mode,
				  (int)getpid(), (double)me->granted_ns / 1e9,
				  (double)me->until_ns / 1e9);
	}
}

static void show_token(struct board *b, const struct day_client *c, const struct vb_grant *g,
		       uint64_t before)
{
	struct watched *w = &b->lock[c->which][g->lock];
	uint64_t seen = get(&w->token);

	if (g->token <= before)
		day_found(b,
			  "%s %" PRIu64 ": token %" PRIu64 ", and %" PRIu64
			  " was shown before the call",
			  day_space(c->which).lock, g->lock, g->token, before);
	while (seen < g->token && !__atomic_compare_exchange_n(&w->token, &seen, g->token, false,
							       __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
		;
	/* Else a later holder was faster: only an equal one is wrong. */
	if (seen == g->token && before < g->token)
		day_found(b, "%s %" PRIu64 ": token %" PRIu64 " twice", day_space(c->which).lock,
			  g->lock, g->token);
}

struct entry *day_enter(struct board *b, const struct day_client *c, const struct vb_grant *g,
			uint64_t token, uint64_t *owner)
{
	uint64_t now = day_now(), mine = vb_lock_now(c->me), left;
	struct entry *e;

	if (g->mode == VB_EXCLUSIVE)
		show_token(b, c, g, token);
	/* What is left by the client's own clock, and less by the kernel's, if the client's is slow. */
	left = g->valid_until_ns > mine ? g->valid_until_ns - mine : 0;
	left -= left * DAY_DRIFT / 1000000;
	e = take_entry(b, &b->lock[c->which][g->lock], now, owner);
	if (e == NULL) {
		add(&b->count.unentered);
		return NULL;
	}
	set(&e->granted_ns, now);
	set(&e->until_ns, now + left);
	set(&e->mode, (uint64_t)g->mode);
	set(&e->pid, (uint64_t)getpid());
	set(&e->ready, *owner);
	judge(b, c, g, e);
	return e;
}

void day_exit(struct entry *e, uint64_t owner)
{
	/* Not if it was taken for left behind. */
	if (e != NULL)
		(void)__atomic_compare_exchange_n(&e->owner, &owner, 0, false, __ATOMIC_SEQ_CST,
						  __ATOMIC_SEQ_CST);
}

/* ---- the end of the day ---- */

/* Whoever died has left what a lease ends. */
static int take_each(struct board *b, struct day_client *c, uint64_t lock)
{
	uint64_t end = day_now() + 60000 * MS, value, owner,
		 token = get(&b->lock[c->which][lock].token);
	struct watched *w = &b->lock[c->which][lock];
	struct vb_grant g;
	struct entry *e;
	int err;

	do
		err = vb_lock_acquire(c->me, lock, VB_EXCLUSIVE, 1000 * MS, &g);
	while (err != 0 && day_now() < end);
	if (err != 0) {
		day_found(b, "%s %" PRIu64 " cannot be had in the end: %s",
			  day_space(c->which).lock, lock, vb_strerror(err));
		return err;
	}
	e = day_enter(b, c, &g, token, &owner);
	err = day_counted(c, lock, &value);
	if (err != 0)
		day_found(b, "the word of %s %" PRIu64 " cannot be read: %s",
			  day_space(c->which).lock, lock, vb_strerror(err));
	else if (value < get(&w->done) || value > get(&w->begun))
		day_found(b,
			  "the word of %s %" PRIu64 " is %" PRIu64 ": %" PRIu64
			  " were done and %" PRIu64 " begun",
			  day_space(c->which).lock, lock, value, w->done, w->begun);
	day_exit(e, owner);
	return vb_lock_release(c->me, &g);
}

static int end(struct board *b, const char *servers, const char *key)
{
	for (unsigned which = 0; which < DAY_SPACES; which++) {
		struct day_client c = {.which = which};

		if (day_come(b, NULL, &c, servers, key, which) != 0) {
			day_found(b, "no client can come in the end");
			continue;
		}
		for (uint64_t lock = 0; lock < DAY_LOCKS; lock++)
			(void)take_each(b, &c, lock);
		day_leave(NULL, &c);
	}
	return 0;
}

/* ---- does the judge judge? ---- */

/* The first lock of two spaces of this process, taken for one lock. */
static int try_out(struct board *b)
{
	struct day_client c[2] = {{.which = 0}, {.which = 0}};
	const char *const names[2] = {"one", "other"};
	struct vb_grant g[2];
	struct entry *e[2];
	uint64_t owner[2], found[4];
	struct vb_fabric *f;
	int err = vb_fabric_open(&(struct vb_fabric_params){.node_bytes = 1 << 20}, &f);

	for (unsigned i = 0; i < 2 && err == 0; i++) {
		struct vb_lock_space_params p = day_space(0);

		p.name = names[i];
		p.servers = 1;
		err = vb_lock_space_open(f, &p, &c[i].space);
		if (err == 0)
			err = vb_lock_client_open(c[i].space, 0, &c[i].me);
		if (err == 0)
			err = vb_lock_acquire(c[i].me, 0, VB_EXCLUSIVE, 1000 * MS, &g[i]);
	}
	if (err != 0) {
		fprintf(stderr, "no lock to try the judge with: %s\n", vb_strerror(err));
		return 1;
	}
	e[0] = day_enter(b, &c[0], &g[0], 0, &owner[0]);
	found[0] = b->count.findings; /* none */
	g[1].token = g[0].token + 1;
	e[1] = day_enter(b, &c[1], &g[1], 0, &owner[1]);
	found[1] = b->count.findings; /* two holders */
	day_exit(e[0], owner[0]);
	day_exit(e[1], owner[1]);
	e[1] = day_enter(b, &c[1], &g[1], 0, &owner[1]);
	found[2] = b->count.findings; /* a token twice */
	day_exit(e[1], owner[1]);
	e[0] = day_enter(b, &c[0], &g[0], g[1].token, &owner[0]);
	found[3] = b->count.findings; /* one that goes back */
	return found[0] == 0 && found[1] == 1 && found[2] == 2 && found[3] == 3 ? 0 : 1;
}

static int say_spaces(void)
{
	for (unsigned i = 0; i < DAY_SPACES; i++) {
		struct vb_lock_space_params p = day_space(i);

		printf("%s:lock=%s,locks=%" PRIu64 ",servers=%u,lease=%" PRIu64
		       "ns,drift=%u,fencing\n",
		       p.name, p.lock, p.locks, p.servers, p.lease_ns, p.drift_ppm);
	}
	return 0;
}

static int show(const struct board *b)
{
	const struct counts *n = &b->count;
	uint64_t done = 0;

	for (unsigned i = 0; i < DAY_SPACES * DAY_LOCKS; i++)
		done += b->lock[i / DAY_LOCKS][i % DAY_LOCKS].done;
	printf("%" PRIu64 " clients (%" PRIu64 " killed, %" PRIu64 " stopped for a while, %" PRIu64
	       " that came anew; %" PRIu64 " attempts to come failed), %" PRIu64 " grants (%" PRIu64
	       " lost to a lease, %" PRIu64 " without room for the audit), %" PRIu64
	       " FAAs on servers; calls: %" PRIu64 " timed out, %" PRIu64
	       " found a peer gone, %" PRIu64 " unknown; %" PRIu64 " findings\n",
	       n->came, n->killed, n->stopped, n->again, n->late, n->grants, n->lost, n->unentered,
	       done, n->not_now, n->gone, n->unknown, n->findings);
	return n->findings != 0;
}

int main(int argc, char **argv)
{
	bool make = argc == 3 && (strcmp(argv[1], "make") == 0 || strcmp(argv[1], "try") == 0);
	struct board *b = argc > 2 ? day_board(argv[2], make) : NULL;

	if (argc == 2 && strcmp(argv[1], "spaces") == 0)
		return say_spaces();
	if (argc == 3 && strcmp(argv[1], "try") == 0)
		return try_out(b);
	if (argc == 3 && strcmp(argv[1], "make") == 0)
		return 0;
	if (argc == 8 && strcmp(argv[1], "crowd") == 0)
		return day_crowd(b, argv[3], argv[4], (unsigned)atoi(argv[5]),
				 (unsigned)atoi(argv[6]), strtoull(argv[7], NULL, 10));
	if (argc == 4 && strcmp(argv[1], "tell") == 0) {
		set(&b->rest, strcmp(argv[3], "work") != 0);
		set(&b->over, strcmp(argv[3], "over") == 0);
		return 0;
	}
	if (argc == 5 && strcmp(argv[1], "end") == 0)
		return end(b, argv[3], argv[4]);
	if (argc == 3 && strcmp(argv[1], "show") == 0)
		return show(b);
	fprintf(stderr, "usage: see scripts/day.sh\n");
	return 2;
}
