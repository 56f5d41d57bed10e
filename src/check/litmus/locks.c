/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small worlds of locks: two or three clients, each at a node of its own, one server node, and when
 * they are through an heir, who must get every lock.
 *
 * Who has been granted a lock uses what it protects by a verb: a WRITE, or in shared mode a READ.
 * So two holds that exclude each other depend on each other, and no order in which they overlap is
 * left out.
 */
#define VB_LOG_ROOM "check"
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/log.h"
#include "check/litmus/world.h"
#include "check/lock/audit.h"

#define PARTIES_MAX 3u
#define LOCKS_MAX   2u
#define STEPS_MAX   8u

#define LEASE_NS      10000000u
#define READ_LEASE_NS 80000u /* writers wait for the end of it */
#define PATIENCE_NS   5000000u

enum call { CALL_END, CALL_ACQUIRE, CALL_TRY, CALL_CONVERT, CALL_RELEASE };

struct step {
	uint8_t call, lock, mode;
	uint32_t timeout_ns; /* 0: none */
};

#define ASK(LOCK, MODE)                                                                            \
	{                                                                                          \
		.call = CALL_ACQUIRE, .lock = LOCK, .mode = VB_##MODE                              \
	}
#define ASK_FOR(LOCK, MODE, NS)                                                                    \
	{                                                                                          \
		.call = CALL_ACQUIRE, .lock = LOCK, .mode = VB_##MODE, .timeout_ns = NS            \
	}
#define TRY(LOCK, MODE)                                                                            \
	{                                                                                          \
		.call = CALL_TRY, .lock = LOCK, .mode = VB_##MODE                                  \
	}
#define TURN(LOCK, MODE)                                                                           \
	{                                                                                          \
		.call = CALL_CONVERT, .lock = LOCK, .mode = VB_##MODE                              \
	}
#define TURN_FOR(LOCK, MODE, NS)                                                                   \
	{                                                                                          \
		.call = CALL_CONVERT, .lock = LOCK, .mode = VB_##MODE, .timeout_ns = NS            \
	}
#define GIVE(LOCK)                                                                                 \
	{                                                                                          \
		.call = CALL_RELEASE, .lock = LOCK                                                 \
	}

struct vb_litmus_lock {
	const char *name, *summary;
	uint32_t caps;    /* enum vb_lock_caps that it needs */
	uint32_t strikes; /* what may befall the first party, once */
	unsigned leases;  /* for which it then stands still */
	unsigned parties, locks;
	const char *options; /* the protocol's; NULL: any */
	struct step steps[PARTIES_MAX][STEPS_MAX];
};

static const struct vb_litmus_lock writers = {
	.name = "writers",
	.summary = "two writers",
	.parties = 2,
	.locks = 1,
	.steps = {{ASK(0, EXCLUSIVE), GIVE(0)}, {ASK(0, EXCLUSIVE), GIVE(0)}},
};

static const struct vb_litmus_lock again = {
	.name = "again",
	.summary = "two writers, one of whom comes again at once",
	.parties = 2,
	.locks = 1,
	.steps = {{ASK(0, EXCLUSIVE), GIVE(0), ASK(0, EXCLUSIVE), GIVE(0)},
		  {ASK(0, EXCLUSIVE), GIVE(0)}},
};

static const struct vb_litmus_lock three_writers = {
	.name = "three-writers",
	.summary = "three writers",
	.parties = 3,
	.locks = 1,
	.steps = {{ASK(0, EXCLUSIVE), GIVE(0)},
		  {ASK(0, EXCLUSIVE), GIVE(0)},
		  {ASK(0, EXCLUSIVE), GIVE(0)}},
};

static const struct vb_litmus_lock readers_writer = {
	.name = "readers-writer",
	.summary = "two readers and a writer",
	.caps = VB_LOCK_SHARED,
	.parties = 3,
	.locks = 1,
	.steps = {{ASK(0, SHARED), GIVE(0)},
		  {ASK(0, EXCLUSIVE), GIVE(0)},
		  {ASK(0, SHARED), GIVE(0)}},
};

static const struct vb_litmus_lock writers_reader = {
	.name = "writers-reader",
	.summary = "two writers and a reader, who comes twice",
	.caps = VB_LOCK_SHARED,
	.parties = 3,
	.locks = 1,
	.steps = {{ASK(0, EXCLUSIVE), GIVE(0)},
		  {ASK(0, SHARED), GIVE(0), ASK(0, SHARED), GIVE(0)},
		  {ASK(0, EXCLUSIVE), GIVE(0)}},
};

static const struct vb_litmus_lock gives_up = {
	.name = "gives-up",
	.summary = "two writers; one gives up after a while, and comes again",
	.parties = 2,
	.locks = 1,
	.steps = {{ASK(0, EXCLUSIVE), GIVE(0)},
		  {ASK_FOR(0, EXCLUSIVE, 10), GIVE(0), ASK(0, EXCLUSIVE), GIVE(0)}},
};

static const struct vb_litmus_lock gives_up_between = {
	.name = "gives-up-between",
	.summary = "three clients; the one in the middle gives up",
	.parties = 3,
	.locks = 1,
	.steps = {{ASK(0, EXCLUSIVE), GIVE(0)},
		  {ASK_FOR(0, EXCLUSIVE, 60), GIVE(0)},
		  {ASK(0, EXCLUSIVE), GIVE(0)}},
};

static const struct vb_litmus_lock tries = {
	.name = "tries",
	.summary = "two writers, one of whom only tries, twice",
	.parties = 2,
	.locks = 1,
	.steps = {{ASK(0, EXCLUSIVE), GIVE(0)},
		  {TRY(0, EXCLUSIVE), GIVE(0), TRY(0, EXCLUSIVE), GIVE(0)}},
};

static const struct vb_litmus_lock upgrade = {
	.name = "upgrade",
	.summary = "an update lock that becomes exclusive, a reader, and another update lock",
	.caps = VB_LOCK_UPDATE,
	.parties = 3,
	.locks = 1,
	.steps = {{ASK(0, UPDATE), TURN(0, EXCLUSIVE), GIVE(0)},
		  {ASK(0, SHARED), GIVE(0)},
		  {ASK(0, UPDATE), GIVE(0)}},
};

static const struct vb_litmus_lock convert = {
	.name = "convert",
	.summary = "a reader who would write and gives up, and another; then a third mode",
	.caps = VB_LOCK_INTENT,
	.parties = 3,
	.locks = 1,
	.steps = {{ASK(0, SHARED), TURN(0, SHARED_INTENT_EXCLUSIVE), TURN_FOR(0, EXCLUSIVE, 100),
		   GIVE(0)},
		  {ASK(0, SHARED), GIVE(0)},
		  {ASK(0, INTENT_EXCLUSIVE), GIVE(0)}},
};

static const struct vb_litmus_lock crossed = {
	.name = "crossed",
	.summary = "two clients take two locks, each in the other's order",
	.caps = VB_LOCK_DENIES,
	.options = "policy=wait-die",
	.parties = 2,
	.locks = 2,
	.steps = {{ASK(0, EXCLUSIVE), ASK(1, EXCLUSIVE), GIVE(0), GIVE(1)},
		  {ASK(1, EXCLUSIVE), ASK(0, EXCLUSIVE), GIVE(1), GIVE(0)}},
};

static const struct vb_litmus_lock loses = {
	.name = "lost-answer",
	.summary = "two writers; one loses an answer, of a verb that ran or of one that did not",
	.strikes = LITMUS_LOSES,
	.parties = 2,
	.locks = 1,
	.steps = {{ASK(0, EXCLUSIVE), GIVE(0), ASK(0, EXCLUSIVE), GIVE(0)},
		  {ASK(0, EXCLUSIVE), GIVE(0)}},
};

static const struct vb_litmus_lock dies = {
	.name = "dies",
	.summary = "two writers; one dies, wherever it is",
	.caps = VB_LOCK_SURVIVES,
	.strikes = LITMUS_DIES,
	.parties = 2,
	.locks = 1,
	.steps = {{ASK(0, EXCLUSIVE), GIVE(0)}, {ASK(0, EXCLUSIVE), GIVE(0)}},
};

static const struct vb_litmus_lock reader_dies = {
	.name = "reader-dies",
	.summary = "a reader and a writer; the reader dies, wherever it is",
	.caps = VB_LOCK_SURVIVES | VB_LOCK_SHARED,
	.strikes = LITMUS_DIES,
	.parties = 2,
	.locks = 1,
	.steps = {{ASK(0, SHARED), GIVE(0)}, {ASK(0, EXCLUSIVE), GIVE(0)}},
};

static const struct vb_litmus_lock pauses = {
	.name = "stands-still",
	.summary = "two writers, both twice; one stands still for a lease, wherever it is",
	.caps = VB_LOCK_SURVIVES,
	.strikes = LITMUS_PAUSES,
	.leases = 1,
	.parties = 2,
	.locks = 1,
	.steps = {{ASK(0, EXCLUSIVE), GIVE(0), ASK(0, EXCLUSIVE), GIVE(0)},
		  {ASK(0, EXCLUSIVE), GIVE(0), ASK(0, EXCLUSIVE), GIVE(0)}},
};

static const struct vb_litmus_lock pauses_long = {
	.name = "comes-back",
	.summary = "two writers; one stands still for longer than a recovery takes",
	.caps = VB_LOCK_SURVIVES,
	.strikes = LITMUS_PAUSES,
	.leases = 12,
	.parties = 2,
	.locks = 1,
	.steps = {{ASK(0, EXCLUSIVE), GIVE(0), ASK(0, EXCLUSIVE), GIVE(0)},
		  {ASK(0, EXCLUSIVE), GIVE(0)}},
};

const struct vb_litmus_lock *const vb_litmus_locks[] = {
	&writers,
	&again,
	&three_writers,
	&readers_writer,
	&writers_reader,
	&gives_up,
	&gives_up_between,
	&tries,
	&upgrade,
	&convert,
	&crossed,
	&loses,
	&dies,
	&reader_dies,
	&pauses,
	&pauses_long,
	NULL,
};

const char *vb_litmus_lock_name(const struct vb_litmus_lock *w)
{
	return w->name;
}

const char *vb_litmus_lock_summary(const struct vb_litmus_lock *w)
{
	return w->summary;
}

bool vb_litmus_lock_fits(const struct vb_litmus_lock *w, const struct vb_lock_ops *ops)
{
	return (ops->caps & w->caps) == w->caps;
}

/* ---- a world ---- */

struct party {
	struct litmus_party is;
	struct vb_lock_client *client;
	bool holds[LOCKS_MAX];
	struct vb_grant grant[LOCKS_MAX];
	const struct step *at; /* for the story of who is stuck */
};

struct world {
	struct litmus_world all;
	const struct vb_litmus_lock *w;
	const struct vb_lock_ops *ops;
	struct vb_lock_space *space;
	struct vb_lock_server *server;
	struct vb_audit *audit;
	vb_addr data;     /* what the locks protect, a line each */
	char answer[192]; /* a call returned what it may not */
	bool forsaken;    /* an outcome stayed unknown, and nobody will mend it */
	struct party party[PARTIES_MAX];
	struct vb_lock_client *heir;
};
_Static_assert(PARTIES_MAX <= LITMUS_PARTIES_MAX, "those of a world");

static struct world *world_of(const struct litmus_world *x)
{
	return vb_container_of(x, struct world, all);
}

static struct party *party_of(struct litmus_party *p)
{
	return vb_container_of(p, struct party, is);
}

static bool survives(const struct vb_lock_ops *ops)
{
	return (ops->caps & VB_LOCK_SURVIVES) != 0;
}

static void begin(struct litmus_world *all)
{
	struct world *x = world_of(all);

	*x = (struct world){.all = *all, .w = x->w, .ops = x->ops};
	for (unsigned i = 0; i < PARTIES_MAX; i++)
		x->all.party[i] = &x->party[i].is;
}

static void died(struct litmus_party *p)
{
	vb_audit_client_died(world_of(p->x)->audit, p->index);
}

/* ---- what a party does ---- */

static const char *const call_names[] = {
	[CALL_ACQUIRE] = "acquire",
	[CALL_TRY] = "try",
	[CALL_CONVERT] = "convert",
	[CALL_RELEASE] = "release",
};

static void say(const struct litmus_party *p, const struct step *s, const char *how, int err)
{
	litmus_say(p->x->l, "  %10.3f us           client %u: %s lock %u%s%s%s%s\n",
		   (double)vb_sched_now(p->x->sched) / 1e3, p->index, call_names[s->call], s->lock,
		   s->call == CALL_RELEASE ? "" : ", ",
		   s->call == CALL_RELEASE ? "" : vb_lock_mode_name((enum vb_mode)s->mode), how,
		   err == 0 ? "" : vb_strerror(err));
}

/* A call returned what it may not. */
static void judge_answer(const struct litmus_party *p, const struct step *s, int err)
{
	struct world *x = world_of(p->x);
	const bool denies = (x->ops->caps & VB_LOCK_DENIES) != 0;

	if (litmus_world_starves(p->x, err))
		return;
	switch (-err) {
	case 0:
		return;
	case ETIMEDOUT:
	case EAGAIN:
		if (s->timeout_ns != 0 || s->call == CALL_TRY || denies)
			return;
		break;
	case EDEADLK:
		if (s->call == CALL_CONVERT)
			return;
		break;
	case VB_ELOST:
		if (p->x->l->struck && survives(x->ops))
			return;
		break;
	case VB_EUNKNOWN:
	case VB_EPEERGONE:
		if (!p->x->l->struck)
			break;
		if (!survives(x->ops)) {
			x->forsaken = true;
			litmus_enough(p->x->l);
		}
		return;
	}
	snprintf(x->answer, sizeof(x->answer),
		 "answer: client %u: %s of lock %u returned %d (%s)\n", p->index,
		 call_names[s->call], s->lock, err, vb_strerror(err));
}

/* By a verb, so that holds which exclude each other depend on each other. */
static void use(struct party *p, const struct vb_grant *g)
{
	const vb_addr at = world_of(p->is.x)->data + g->lock * VB_CACHELINE;
	uint64_t word = p->is.index;

	if (g->mode == VB_SHARED || g->mode == VB_INTENT_SHARED)
		(void)vb_read(p->client->ep, at, &word, sizeof(word));
	else
		(void)vb_write(p->client->ep, at, &word, sizeof(word));
}

static int do_step(struct party *p, const struct step *s)
{
	const uint64_t timeout = s->timeout_ns ? s->timeout_ns : VB_FOREVER_NS;
	const enum vb_mode mode = (enum vb_mode)s->mode;
	struct vb_grant *g = &p->grant[s->lock];

	switch ((enum call)s->call) {
	case CALL_ACQUIRE:
		return vb_lock_acquire(p->client, s->lock, mode, timeout, g);
	case CALL_TRY:
		return vb_lock_try(p->client, s->lock, mode, g);
	case CALL_CONVERT:
		return vb_lock_convert(p->client, g, mode, timeout);
	default:
		return vb_lock_release(p->client, g);
	}
}

static void live(struct litmus_party *is)
{
	struct party *p = party_of(is);

	for (const struct step *s = world_of(is->x)->w->steps[is->index]; s->call != CALL_END;
	     s++) {
		const bool asks = s->call == CALL_ACQUIRE || s->call == CALL_TRY;
		int err;

		if (!asks && !p->holds[s->lock])
			continue;
		p->at = s;
		say(is, s, "", 0);
		err = do_step(p, s);
		if (vb_sim_ep_dead(p->client->ep))
			vb_task_die();
		say(is, s, err == 0 ? ": done" : ": ", err);
		judge_answer(is, s, err);
		p->holds[s->lock] = asks ? err == 0 : s->call == CALL_CONVERT;
		if (s->call != CALL_RELEASE && p->holds[s->lock])
			use(p, &p->grant[s->lock]);
	}
	p->at = NULL;
}

/* ---- a run ---- */

static bool has_option(const struct world *x, const char *setting)
{
	for (const struct vb_opt *o = x->ops->options; o != NULL && o->name != NULL; o++)
		if (!strncmp(setting, o->name, strlen(o->name)) && setting[strlen(o->name)] == '=')
			return true;
	return false;
}

/* So that who waits for a successor or an answer that may never come is through soon, and that little
 * memory is to be made. */
static const char *options_of(const struct world *x, char *buf, size_t size)
{
	static const char *const settings[] = {"successor_wait=1ms", "ask_for=1ms", "requests=16"};
	int n = snprintf(buf, size, "%s", x->w->options != NULL ? x->w->options : "");

	for (unsigned i = 0; i < VB_ARRAY_SIZE(settings); i++)
		if (has_option(x, settings[i]))
			n += snprintf(buf + n, size - (size_t)n, "%s%s", n > 0 ? "," : "",
				      settings[i]);
	return n > 0 ? buf : NULL;
}

static int open_space(struct litmus_world *all)
{
	struct world *x = world_of(all);
	char options[96];
	const struct vb_lock_space_params p = {
		.lock = x->ops->name,
		.options = options_of(x, options, sizeof(options)),
		.locks = x->w->locks,
		.servers = 1,
		.lease_ns = all->lease_ns,
		.fencing = (x->ops->caps & VB_LOCK_TOKEN) != 0,
		.claims = 4,
	};
	bool fresh;
	int err = vb_audit_open_space(all->fabric, &p, all->parties + 1, all->strikes == 0,
				      &x->space, &x->audit);

	if (err)
		return err;
	x->space->watch = vb_audit_watch(x->audit);
	err = vb_lock_server_start(x->space, 0, 0, 1, &x->server);
	return err ? err
		   : vb_region(all->fabric, 0, "litmus", LOCKS_MAX * VB_CACHELINE, &x->data,
			       &fresh);
}

static int open_client(struct world *x, unsigned index, struct vb_lock_client **out)
{
	int err = vb_lock_client_open(x->space, (uint16_t)(1 + index), out);

	if (err) {
		*out = NULL;
		return err;
	}
	(*out)->index = index;
	return 0;
}

static int open_party(struct litmus_party *is, struct vb_ep **ep)
{
	struct party *p = party_of(is);
	int err = open_client(world_of(is->x), is->index, &p->client);

	if (err == 0)
		*ep = p->client->ep;
	return err;
}

static void close_party(struct litmus_party *is)
{
	struct party *p = party_of(is);

	vb_lock_client_close(p->client);
	p->client = NULL;
}

static void tell_stuck(struct world *x)
{
	for (unsigned i = 0; i < x->w->parties; i++) {
		const struct party *p = &x->party[i];
		char text[160];

		if (p->is.ended || p->at == NULL)
			continue;
		snprintf(text, sizeof(text), "waits in %s since everybody else is through or waits",
			 call_names[p->at->call]);
		vb_audit_violation(x->audit, VB_AUDIT_STUCK, i, p->at->lock, text);
	}
}

/* Where nobody was struck nothing is to be recovered. */
static void judge_recoveries(struct world *x)
{
	for (unsigned i = 0; i < x->w->parties && survives(x->ops) && !x->all.l->struck; i++)
		if (x->party[i].client != NULL && x->party[i].client->recoveries > 0)
			vb_audit_violation(x->audit, VB_AUDIT_NEEDLESS_RECOVERY, i, 0,
					   "has recovered a lock although nothing was wrong");
}

/* Whatever happened, somebody new gets every lock. */
static void inherit(struct world *x)
{
	int err = open_client(x, x->w->parties, &x->heir);
	struct vb_grant g;
	char text[96];

	for (unsigned i = 0; i < x->w->locks; i++) {
		if (x->heir != NULL)
			err = vb_lock_acquire(x->heir, i, VB_EXCLUSIVE, PATIENCE_NS, &g);
		if (err == 0) {
			(void)vb_lock_release(x->heir, &g);
			continue;
		}
		if (litmus_world_starves(&x->all, err))
			return;
		snprintf(text, sizeof(text), "came when all were through, and does not get it: %s",
			 vb_strerror(err));
		vb_audit_violation(x->audit, VB_AUDIT_STUCK, x->w->parties, i, text);
	}
}

static void conclude(struct world *x)
{
	struct vb_audit_counts c;
	char *story = NULL;
	size_t size;
	FILE *f;

	vb_audit_counts(x->audit, &c);
	if (c.violations == 0 && x->answer[0] != '\0')
		litmus_found(x->all.l, "answer", x->answer);
	if (c.violations == 0)
		return;
	f = open_memstream(&story, &size);
	if (f == NULL)
		return;
	vb_audit_print(x->audit, f);
	fclose(f);
	for (unsigned i = 0; i < VB_AUDIT_RULES; i++)
		if (!strncmp(story, vb_audit_rule_names[i], strlen(vb_audit_rule_names[i])))
			litmus_found(x->all.l, vb_audit_rule_names[i], story);
	free(story);
}

static void judge(struct litmus_world *all, int err)
{
	struct world *x = world_of(all);

	if (all->l->stop && !x->forsaken)
		return;
	if (err != 0 && !x->forsaken)
		tell_stuck(x);
	judge_recoveries(x);
	if (err == 0 && !x->forsaken) {
		litmus_world_leave(all);
		inherit(x);
	}
	conclude(x);
}

static void tear_down(struct litmus_world *all)
{
	struct world *x = world_of(all);

	if (x->server != NULL)
		vb_lock_server_stop(x->server);
	if (all->sched != NULL)
		vb_sched_kill_all(all->sched);
	if (x->space != NULL)
		vb_lock_space_bury(x->space);
	for (unsigned i = 0; i < x->w->parties; i++)
		if (x->party[i].client != NULL)
			vb_lock_client_bury(x->party[i].client);
	if (x->heir != NULL)
		vb_lock_client_bury(x->heir);
	vb_lock_space_close(x->space);
	if (all->fabric != NULL)
		vb_fabric_close(all->fabric);
	vb_audit_close(x->audit);
}

static int tell_verb(const struct litmus_world *all, const struct vb_sim_verb *v, char *buf,
		     size_t size)
{
	const struct world *x = world_of(all);
	const uint64_t *word = vb_local(all->fabric, v->addr, 8);

	if (v->addr >= x->data && v->addr < x->data + LOCKS_MAX * VB_CACHELINE)
		return snprintf(buf, size, " (what the lock protects)");
	return litmus_is_plain(v) ? snprintf(buf, size, ", %u bytes, is %#" PRIx64, v->len, *word)
				  : 0;
}

static const struct litmus_kind kind = {
	.nodes_more = 2,
	.node_bytes = 256 << 10,
	.endpoints = 16,
	.patience_ns = PATIENCE_NS,
	.begin = begin,
	.open = open_space,
	.open_party = open_party,
	.close_party = close_party,
	.live = live,
	.died = died,
	.judge = judge,
	.tear_down = tear_down,
	.tell_verb = tell_verb,
};

int vb_litmus_lock_run(const struct vb_litmus_lock *w, const struct vb_lock_ops *ops,
		       const struct vb_litmus_params *p, struct vb_litmus_result *out)
{
	struct world x = {
		.all = {.kind = &kind,
			.protocol = ops->name,
			.name = w->name,
			.parties = w->parties,
			.strikes = w->strikes,
			.leases = w->leases,
			.short_leases = w->strikes != 0 && survives(ops),
			.lease_ns = ops->caps & VB_LOCK_READ_LEASE ? READ_LEASE_NS : LEASE_NS},
		.w = w,
		.ops = ops,
	};

	return litmus_world_explore(&x.all, p, out);
}
