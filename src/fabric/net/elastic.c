/* SPDX-License-Identifier: Apache-2.0 */
/* Who belongs to an elastic cluster: greetings, places, their end.  See elastic.h. */
#define VB_LOG_ROOM "net"
#include "fabric/net/elastic.h"

#include <inttypes.h>
#include <sys/random.h>

#include "base/log.h"
#include "fabric/net/state.h"
#include "vb_config.h"

#define CARD_VERSION  4
#define SAID_NS       10000000000ull
#define CLOCK_EACH_NS 1000000000ull
#define CLOCK_UNKNOWN 3600000000000ull
#define CLOCK_DRIFT   1000 /* what of two clocks may go apart: a part in so many */

/* Whatever its version, a card has it in the first byte, and the text `verbena` where it is. */
struct card {
	uint8_t version, client;
	uint16_t nodes;
	uint32_t servers;
	uint64_t node_bytes, bound_ns;
	char verbena[24];
	uint64_t settle_ns;
	uint8_t id[NET_ID];
	uint64_t place; /* to a client: the number of its place */
	uint64_t linger_ns;
	uint64_t born;  /* of a server: when it has begun */
	uint64_t known; /* to a server: the latest of its name */
};
_Static_assert(sizeof(struct card) == NET_CARD && NET_CARD <= NET_CONTROL_MAX, "a card fits");

/* ---- beginning and end ---- */

int net_elastic_new(struct net_fabric *f, const struct net_elastic_params *p)
{
	struct net_elastic *e = calloc(1, sizeof(*e));
	bool client = p->rank == p->servers;
	uint32_t first = 0;

	f->elastic = e;
	if (e == NULL)
		return vb_fail(-ENOMEM, "no memory for a fabric");
	e->p = *p;
	e->report_ns = VB_FOREVER;
	e->shaped = !client;
	vb_list_init(&e->away);
	e->turn = calloc(p->servers, sizeof(*e->turn));
	e->seen = calloc(p->servers, sizeof(*e->seen));
	e->former = calloc(p->servers, sizeof(*e->former));
	e->later = calloc(p->servers, sizeof(*e->later));
	e->up = calloc(p->servers, sizeof(*e->up));
	e->met = calloc(p->servers, sizeof(*e->met));
	e->place = calloc(p->servers, sizeof(*e->place));
	e->home = calloc(p->servers, sizeof(*e->home));
	e->member = calloc(client ? 1 : p->clients, sizeof(*e->member));
	e->box = calloc(client ? 1 : NET_CLIENTS_MAX, sizeof(struct net_box *));
	if (e->turn == NULL || e->seen == NULL || e->former == NULL || e->later == NULL ||
	    e->up == NULL || e->met == NULL || e->place == NULL || e->home == NULL ||
	    e->member == NULL || e->box == NULL)
		return vb_fail(-ENOMEM, "no memory for a fabric");
	for (uint32_t i = 0; i < p->servers; i++)
		e->home[i].lost_ns = VB_FOREVER;
	if (getrandom(e->id, sizeof(e->id), 0) != sizeof(e->id) ||
	    getrandom(&first, sizeof(first), 0) != sizeof(first))
		return vb_fail(-EIO, "no random numbers for a process's id");
	/* Who had been given a number before this server began again may still be called by it. */
	f->core->next_client = first & 0xffffff;
	e->born = client ? 0 : net_later_now();
	f->hosts = p->servers;
	f->host = p->rank;
	f->f.caps.lease_max_ns = p->settle_ns;
	f->f.caps.client = client;
	f->f.caps.servers = p->servers;
	return 0;
}

void net_elastic_free(struct net_fabric *f)
{
	struct net_elastic *e = f->elastic;

	if (e == NULL)
		return;
	if (e->member != NULL && !net_is_client(f))
		for (uint32_t i = 0; i < e->p.clients; i++)
			if (e->member[i].used)
				net_box_free_all(f, &e->member[i]);
	free(e->turn);
	free(e->seen);
	free(e->former);
	free(e->later);
	free(e->up);
	free(e->met);
	free(e->place);
	free(e->home);
	free(e->member);
	free(e->box);
	free(e);
	f->elastic = NULL;
}

void net_elastic_leave(struct net_fabric *f)
{
	const struct control_count c = {.kind = CONTROL_LEAVE, .version = CONTROL_VERSION};

	for (uint32_t h = 0; h < f->hosts; h++)
		(void)f->t->control(f, h, &c, sizeof(c));
}

int net_elastic_resume(struct net_fabric *f)
{
	struct net_elastic *e = f->elastic;
	uint64_t until = vb_clock_ns() + e->p.linger_ns;

	if (!net_state_resumed(f))
		return 0;
	/* It counts its questions anew, so that none of it is one that has been answered. */
	net_hold_disown(f, f->host);
	net_hold_drop_strange(f);
	for (uint32_t i = 0; i < e->p.clients; i++) {
		const struct net_state_member *was = &e->state->member[i];
		struct net_member *m = &e->member[i];

		if (!was->used) {
			net_hold_disown(f, f->hosts + i);
			continue;
		}
		/* As if the connection had been lost: boxes are of a turn before. */
		*m = (struct net_member){
			.used = true, .number = was->number, .turn = 1, .until_ns = until};
		memcpy(m->id, was->id, NET_ID);
		vb_list_init(&m->boxes);
		e->members++;
		f->t->host_new(f, f->hosts + i);
	}
	f->t->due(f, until);
	return net_box_resume(f);
}

static struct net_member *member_of(const struct net_fabric *f, uint32_t host)
{
	if (net_is_client(f) || host < f->hosts || host - f->hosts >= f->elastic->p.clients)
		return NULL;
	return &f->elastic->member[host - f->hosts];
}

/* ---- greetings ---- */

void net_elastic_card(const struct net_fabric *f, uint32_t host, uint8_t to[NET_CARD])
{
	const struct net_member *m = member_of(f, host);
	struct card c = {
		.version = CARD_VERSION,
		.client = net_is_client(f),
		.nodes = f->f.nodes,
		.servers = f->hosts,
		.node_bytes = f->f.node_bytes,
		.bound_ns = f->f.caps.verb_bound_ns,
	};

	c.settle_ns = f->f.caps.lease_max_ns;
	memcpy(c.id, f->elastic->id, sizeof(c.id));
	c.place = m != NULL ? m->number : 0;
	c.linger_ns = f->elastic->p.linger_ns;
	c.born = f->elastic->born;
	c.known = host < f->hosts ? f->elastic->later[host] : 0;
	snprintf(c.verbena, sizeof(c.verbena), "%s", VB_VERSION);
	memcpy(to, &c, sizeof(c));
}

/* A client goes by the nodes and the bound that its servers have. */
static const char *take_shape(struct net_fabric *f, const struct card *c)
{
	if (c->nodes < f->hosts || c->nodes > VB_FABRIC_NODES_MAX || c->node_bytes == 0 ||
	    c->node_bytes > 1ull << VB_ADDR_OFFSET_BITS || c->bound_ns == 0 ||
	    c->bound_ns > NET_BOUND_MAX)
		return "its nodes are no nodes";
	f->f.nodes = c->nodes;
	f->f.node_bytes = c->node_bytes;
	f->f.caps.verb_bound_ns = c->bound_ns;
	f->f.caps.lease_max_ns = c->settle_ns;
	f->elastic->shaped = true;
	return NULL;
}

/* What a peer calls itself is its own text. */
static const char *say_versions(struct net_elastic *e, const struct card *c)
{
	char theirs[sizeof(c->verbena) + 1] = "";

	for (size_t i = 0; i < sizeof(c->verbena) && c->verbena[i] != '\0'; i++)
		theirs[i] = c->verbena[i] > ' ' && c->verbena[i] <= '~' ? c->verbena[i] : '?';
	snprintf(e->other, sizeof(e->other),
		 "it is another version of Verbena, %s (card %u), and this is " VB_VERSION
		 " (card %d)",
		 theirs, c->version, CARD_VERSION);
	return e->other;
}

static const char *compare(struct net_fabric *f, uint32_t host, const struct card *c)
{
	if (c->version != CARD_VERSION || strncmp(c->verbena, VB_VERSION, sizeof(c->verbena)) != 0)
		return say_versions(f->elastic, c);
	if (c->servers != f->hosts)
		return "it names another number of servers";
	if (c->client != (host >= f->hosts))
		return "it is a client where a server should be, or the other way round";
	if (c->client)
		return NULL;
	if (net_is_client(f) && !f->elastic->shaped)
		return take_shape(f, c);
	if (c->nodes != f->f.nodes || c->node_bytes != f->f.node_bytes ||
	    c->bound_ns != f->f.caps.verb_bound_ns || c->settle_ns != f->f.caps.lease_max_ns)
		return "its nodes, bound or settle are others than those of the other servers";
	return NULL;
}

static bool is_former(const struct net_former *former, const uint8_t id[NET_ID])
{
	for (uint32_t i = 0; i < former->n && i < NET_FORMER; i++)
		if (memcmp(former->id[i], id, NET_ID) == 0)
			return true;
	return false;
}

/* NULL: as it was, or this process goes on with it.  Otherwise it has begun again and our endpoints there are
 * nobody's, or has given us up, and others know us for dead; or another one is in its place. */
static const char *changed(struct net_fabric *f, uint32_t host, const struct card *c)
{
	static const uint8_t none[NET_ID];
	struct net_elastic *e = f->elastic;
	const char *why = NULL;
	bool first, other;

	first = memcmp(e->seen[host], none, NET_ID) == 0;
	other = !first && memcmp(e->seen[host], c->id, NET_ID) != 0;
	why = net_later_greeted(f, host, c->born);
	if (why != NULL)
		return why;
	if (other && is_former(&e->former[host], c->id))
		return "another one has begun in its place";
	if (other && e->home[host].eps == 0)
		net_later_replaced(f, host);
	else if (other)
		why = "it has begun again, and lost what it had";
	memcpy(e->seen[host], c->id, NET_ID);
	/* Until it is met nothing of ours was there to be lost: what it says then counts, and not what it, or who was
	 * there before, has said in a greeting that came to nothing.  Afterwards it may greet over the same
	 * connection once more, if our WELCOME was late. */
	if (!e->met[host] || other)
		e->place[host] = c->place;
	if (c->place != e->place[host])
		why = "it has given this process up, which was away for longer than its option "
		      "linger";
	if (why != NULL)
		net_home_gone(f, host, why);
	else
		e->home[host].linger_ns = c->linger_ns;
	return why;
}

const char *net_elastic_greeted(struct net_fabric *f, uint32_t host, const void *card, size_t bytes)
{
	const char *why = "it brings no card";
	struct card c = {0};
	uint64_t now;

	if (bytes > 0) {
		memcpy(&c, card, bytes < sizeof(c) ? bytes : sizeof(c));
		why = bytes == sizeof(c) ? compare(f, host, &c) : say_versions(f->elastic, &c);
	}
	if (why == NULL && net_later_heard_of_us(f, c.known))
		why = "another one has begun in the place of this server";
	if (why == NULL && host < f->hosts) {
		why = changed(f, host, &c);
		if (why == NULL || net_host_gone(f, (uint16_t)host))
			return why;
	}
	if (why == NULL)
		return NULL;
	f->elastic->why = why;
	f->elastic->refused = true;
	/* It may come again and again. */
	now = vb_clock_ns();
	if (f->elastic->said_ns != 0 && now - f->elastic->said_ns < SAID_NS)
		return why;
	f->elastic->said_ns = now;
	vb_warn("%s %u is refused: %s (this is %s of %u servers, %u nodes of %" PRIu64
		" bytes, a bound of %" PRIu64 " ns)",
		host < f->hosts ? "server" : "client", net_elastic_number(f, host), why, VB_VERSION,
		f->hosts, f->f.nodes, f->f.node_bytes, f->f.caps.verb_bound_ns);
	return why;
}

/* The age of what is known makes it worth less: two clocks may go apart. */
static uint64_t clock_error(const struct net_elastic *e, uint64_t now)
{
	uint64_t age = now > e->read_ns ? now - e->read_ns : 0;

	return e->read_ns == 0 ? CLOCK_UNKNOWN : e->error_ns + age / CLOCK_DRIFT;
}

static void clock_read(struct net_elastic *e, uint64_t clock, uint64_t sent_ns, uint64_t came_ns)
{
	uint64_t trip = came_ns - sent_ns;

	if (trip / 2 + 1 > clock_error(e, came_ns))
		return;
	e->offset_ns = (int64_t)(clock + trip / 2 - came_ns);
	e->error_ns = trip / 2 + 1;
	e->read_ns = came_ns;
}

void net_elastic_up(struct net_fabric *f, uint32_t host, uint64_t clock, uint64_t sent_ns,
		    uint64_t came_ns)
{
	struct net_elastic *e = f->elastic;

	if (host < f->hosts)
		e->up[host] = e->met[host] = true;
	if (host == 0) {
		clock_read(e, clock, sent_ns, came_ns);
		e->clock_due_ns = came_ns;
		f->t->due(f, e->clock_due_ns);
	}
	net_later_tell(f, host);
	if (net_is_client(f)) {
		net_away_tell_all(f, host);
		net_home_up(f, host);
	}
}

/* Server 0's clock is looked at again and again; says when next. */
static uint64_t ask_for_clock(struct net_fabric *f, uint64_t now)
{
	struct net_elastic *e = f->elastic;
	struct control_ask q = {.kind = CONTROL_CLOCK, .version = CONTROL_VERSION};

	if (f->host == 0 || !e->up[0])
		return VB_FOREVER;
	if (now < e->clock_due_ns)
		return e->clock_due_ns;
	q.number = ++e->clock_number;
	e->clock_asked_ns = now;
	e->clock_due_ns = now + CLOCK_EACH_NS;
	(void)f->t->control(f, 0, &q, sizeof(q));
	return e->clock_due_ns;
}

int net_elastic_home(struct net_fabric *f)
{
	const struct net_elastic *e = f->elastic;
	int home = -ENOENT;

	pthread_mutex_lock(&f->engine);
	for (uint32_t i = 0; i < f->hosts && home < 0; i++) {
		uint32_t host = (e->id[0] + i) % f->hosts;

		if (e->up[host] && !net_memory_gone(f, host))
			home = (int)host;
	}
	pthread_mutex_unlock(&f->engine);
	return home >= 0 ? home : e->id[0] % (int)f->hosts;
}

/* All have server 0's clock in common. */
uint64_t net_elastic_now(struct net_fabric *f, uint64_t now, uint64_t *error_ns)
{
	const struct net_elastic *e = f->elastic;
	int64_t offset_ns;

	*error_ns = 0;
	if (f->host == 0)
		return now;
	pthread_mutex_lock(&f->engine);
	offset_ns = e->offset_ns;
	/* Another thread may have read it since `now`. */
	*error_ns = clock_error(e, now);
	pthread_mutex_unlock(&f->engine);
	return now + (uint64_t)offset_ns;
}

/* ---- places ---- */

uint32_t net_elastic_place(struct net_fabric *f, const uint8_t id[NET_ID])
{
	struct net_elastic *e = f->elastic;
	uint32_t lowest = NET_NOBODY;
	struct net_member *m;

	if (e->replaced)
		return NET_NOBODY;

	for (uint32_t i = 0; i < e->p.clients; i++) {
		m = &e->member[i];
		if (m->used && memcmp(m->id, id, NET_ID) == 0) {
			/* It is here, and has yet to say what it has. */
			if (m->until_ns != VB_FOREVER)
				m->until_ns = vb_clock_ns() + e->p.linger_ns;
			return f->hosts + i;
		}
		if (!m->used && lowest == NET_NOBODY)
			lowest = i;
	}
	if (lowest == NET_NOBODY)
		return NET_NOBODY;
	m = &e->member[lowest];
	*m = (struct net_member){
		.used = true, .number = ++e->places, .until_ns = vb_clock_ns() + e->p.linger_ns};
	memcpy(m->id, id, NET_ID);
	vb_list_init(&m->boxes);
	e->members++;
	net_state_member(f, lowest);
	f->t->host_new(f, f->hosts + lowest);
	f->t->due(f, m->until_ns);
	vb_info("client %u has come", net_elastic_number(f, f->hosts + lowest));
	return f->hosts + lowest;
}

void net_elastic_down(struct net_fabric *f, uint32_t host)
{
	struct net_member *m = member_of(f, host);

	if (host < f->hosts) {
		if (f->elastic->up[host])
			net_home_down(f, host);
		f->elastic->turn[host]++;
		f->elastic->up[host] = false;
	}
	if (m == NULL || !m->used)
		return;
	m->live = false;
	m->turn++;
	if (m->until_ns == VB_FOREVER)
		m->until_ns = vb_clock_ns() + f->elastic->p.linger_ns;
	f->t->due(f, m->until_ns);
}

static void bury(struct net_fabric *f, uint32_t host)
{
	struct net_member *m = member_of(f, host);

	/* First: should this process end in the middle, the next one gives up all of it that is left, and never goes on
	 * with a client that has lost some. */
	m->used = false;
	net_state_member(f, host - f->hosts);
	net_box_free_all(f, m);
	net_hold_disown(f, host);
	f->elastic->members--;
	f->t->host_gone(f, host);
	vb_info("client %u is gone: its place is free again", net_elastic_number(f, host));
}

uint64_t net_elastic_tick(struct net_fabric *f, uint64_t now)
{
	struct net_elastic *e = f->elastic;
	uint64_t due = ask_for_clock(f, now), at;

	if (net_is_client(f)) {
		at = net_home_tick(f, now);
		due = at < due ? at : due;
		if (now >= e->report_ns)
			net_away_report(f);
		return e->report_ns < due ? e->report_ns : due;
	}
	for (uint32_t i = 0; i < e->p.clients && e->members > 0; i++) {
		struct net_member *m = &e->member[i];

		if (!m->used)
			continue;
		if (now >= m->until_ns)
			bury(f, f->hosts + i);
		else if (m->until_ns < due)
			due = m->until_ns;
	}
	return due;
}

/* ---- control messages ---- */

static bool told(struct net_fabric *f, uint32_t from, const struct control_count *c)
{
	struct net_member *m = member_of(f, from);

	if (m == NULL || !m->used)
		return false;
	switch (c->kind) {
	case CONTROL_LEAVE:
		/* Not here: what has brought it is on the stack. */
		m->until_ns = 0;
		f->t->due(f, 0);
		return true;
	case CONTROL_HAVE_ALL:
		m->until_ns = VB_FOREVER;
		m->live = true;
		/* What has grown since the connection began was told to those that lived. */
		net_later_tell(f, from);
		break;
	case CONTROL_HAVE:
	case CONTROL_TAKEN:
	case CONTROL_GIVE_BACK:
	case CONTROL_UNASK:
		break;
	default:
		return false;
	}
	net_box_told(f, from, c);
	return true;
}

/* Asked, or answered. */
static void clock_came(struct net_fabric *f, uint32_t from, const struct control_ask *q)
{
	struct net_elastic *e = f->elastic;
	struct control_ask a = *q;

	if (q->kind == CONTROL_CLOCK) {
		a.kind = CONTROL_TIME;
		a.bytes = vb_clock_ns();
		(void)f->t->control(f, from, &a, sizeof(a));
	} else if (from == 0 && q->number == e->clock_number) {
		clock_read(e, q->bytes, e->clock_asked_ns, vb_clock_ns());
	}
}

static bool asked(struct net_fabric *f, uint32_t from, const struct control_ask *q)
{
	struct control_answer a = {
		.kind = CONTROL_ANSWER, .version = CONTROL_VERSION, .number = q->number};

	if (q->kind == CONTROL_CLOCK || q->kind == CONTROL_TIME) {
		clock_came(f, from, q);
		return true;
	}
	if (q->kind != CONTROL_NUMBER && q->kind != CONTROL_LIVES)
		return false;
	if (net_is_client(f) || q->node >= f->f.nodes || net_host_of_node(f, q->node) != f->host)
		a.err = -EPROTO;
	else
		net_box_asked(f, from, q, &a);
	(void)f->t->control(f, from, &a, sizeof(a));
	return true;
}

bool net_elastic_control(struct net_fabric *f, uint32_t from, const void *data, size_t bytes)
{
	struct control_letter l;
	struct control_count c;
	struct control_ask q;

	if (bytes < 2 || ((const uint8_t *)data)[1] != CONTROL_VERSION)
		return false;
	if (bytes == sizeof(l) && net_is_client(f)) {
		memcpy(&l, data, sizeof(l));
		if (l.kind != CONTROL_LETTER)
			return false;
		net_away_letter(f, from, &l);
		return true;
	}
	if (bytes == sizeof(c)) {
		memcpy(&c, data, sizeof(c));
		return told(f, from, &c);
	}
	if (net_later_control(f, data, bytes))
		return true;
	if (bytes != sizeof(q))
		return false;
	memcpy(&q, data, sizeof(q));
	return asked(f, from, &q);
}
