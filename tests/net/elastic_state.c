/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A server with a state is killed and begins again: what it had granted, made and taken in is as it was, to who has
 * known it and to who has not; and a state that is not its own is refused.
 */
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "elastic_state.h"

#define LEASE_NS (6000 * MS) /* the test's processes stand still for less */
#define LOCKS    6

static const char *protocol;
static uint64_t lease_ns = LEASE_NS;
static uint16_t nodes = 1; /* that have locks */
static uint64_t count = LOCKS;

static struct vb_lock_space_params locks(void)
{
	return (struct vb_lock_space_params){.lock = protocol,
					     .locks = count,
					     .servers = nodes,
					     .lease_ns = lease_ns,
					     .fencing = true};
}

static void serve_locks(struct world *w, struct vb_fabric *f)
{
	struct vb_lock_space_params p = locks();
	struct vb_lock_server *server;
	struct vb_lock_space *space;

	(void)w;
	MUST_BE(0, vb_lock_space_open_own(f, &p, &space));
	MUST_BE(0, vb_lock_server_start(space, (uint16_t)net_of(f)->host, 0, 1, &server));
}

/* ---- a holder ---- */

struct client_of {
	struct vb_fabric *f;
	struct vb_lock_space *space;
	struct vb_lock_client *me;
};

static void come(struct world *w, struct client_of *c)
{
	struct vb_lock_space_params p = locks();

	MUST_BE(0, open_client_as(w, w->key, ",retry=20ms", &c->f));
	MUST_BE(0, vb_lock_space_open(c->f, &p, &c->space));
	MUST_BE(0, vb_lock_client_open(c->space, (uint16_t)(getpid() % nodes), &c->me));
}

static void leave(struct client_of *c)
{
	vb_lock_client_close(c->me);
	MUST_BE(0, vb_lock_space_close(c->space));
	MUST_BE(0, vb_fabric_close(c->f));
}

static void holder(struct world *w)
{
	struct client_of c;
	struct vb_grant g;
	uint64_t word;
	int err;

	come(w, &c);
	MUST_BE(0, vb_lock_acquire(c.me, 1, VB_EXCLUSIVE, WAIT_NS, &g));
	set(&w->b->word[0], g.token);
	set(&w->b->step[0], 1);
	while (get(&w->b->step[1]) == 0)
		MUST_BE(0, vb_ep_sleep(c.me->ep, MS));
	MUST(vb_lock_valid(c.me, &g));
	/* A release asks for as long as a link may take to be made anew: on a busy machine it may take longer. */
	UNTIL_0(c.me->ep, vb_read64(c.me->ep, vb_addr_make(0, 0), &word));
	err = vb_lock_release(c.me, &g);
	/* A server that is asked is another one than before: then its lease ends it. */
	MUST(err == 0 || (err == -VB_EUNKNOWN && strcmp(protocol, "rpc") == 0));
	leave(&c);
}

/* Comes when the server has begun again. */
static void other(struct world *w)
{
	struct client_of c;
	struct vb_grant g;
	int err;

	come(w, &c);
	MUST_BE(0, vb_lock_acquire(c.me, 2, VB_EXCLUSIVE, WAIT_NS, &g));
	MUST_BE(0, vb_lock_release(c.me, &g));
	err = vb_lock_acquire(c.me, 1, VB_EXCLUSIVE, 100 * MS, &g);
	MUST(err == -ETIMEDOUT || err == -EAGAIN);
	set(&w->b->step[1], 1);
	MUST_BE(0, vb_lock_acquire(c.me, 1, VB_EXCLUSIVE, WAIT_NS, &g));
	MUST(g.token > get(&w->b->word[0]));
	MUST_BE(0, vb_lock_release(c.me, &g));
	leave(&c);
}

static void holds_across(const char *lock)
{
	struct world w;
	pid_t pid;

	protocol = lock;
	lease_ns = LEASE_NS;
	state_open(&w, "");
	server_start(&w, 0, serve_locks);
	pid = client(&w, holder);
	await(get(&w.b->step[0]));
	again(&w, serve_locks);
	again(&w, serve_locks);
	ended(client(&w, other));
	ended(pid);
	state_close(&w);
}

static void test_holder(void **unused)
{
	(void)unused;
	holds_across("dslr");
	holds_across("rpc");
	holds_across("shiftlock");
}

/* ---- memory, letters, names ---- */

static void reader(struct world *w)
{
	struct vb_fabric *f;
	struct vb_msg m;
	struct vb_ep *ep;
	vb_addr at;
	uint64_t old;
	bool fresh;

	MUST_BE(0, open_client_as(w, w->key, ",retry=20ms", &f));
	MUST_BE(0, vb_ep_open(f, 0, &ep));
	MUST_BE(0, vb_region(f, 0, "word", 64, &at, &fresh));
	MUST(fresh);
	MUST_BE(0, vb_faa64(ep, at, 5, &old));
	set(&w->b->word[0], ep->self);
	set(&w->b->word[1], at);
	set(&w->b->step[0], 1);
	raise(SIGSTOP);
	for (uint16_t i = 0; i < 20; i++) {
		while (vb_ep_recv(ep, &m) != 0)
			MUST_BE(0, vb_ep_wait(ep, vb_ep_now(ep) + WAIT_NS));
		MUST(m.tag == i);
	}
	/* Its own name is alive, and nothing comes twice. */
	MUST(vb_peer_alive(f, ep->self));
	MUST_BE(0, vb_ep_sleep(ep, 50 * MS));
	MUST_BE(-EAGAIN, vb_ep_recv(ep, &m));
	UNTIL_0(ep, vb_faa64(ep, at, 1, &old));
	MUST(old == 6);
	vb_ep_close(ep);
	MUST_BE(0, vb_fabric_close(f));
}

/* Writes ten letters to one who does not look, before the server's end and after it. */
static void writer(struct world *w)
{
	uint16_t first = get(&w->b->step[1]) ? 10 : 0;
	struct vb_fabric *f;
	struct vb_ep *ep;
	vb_addr at;
	uint64_t old;
	bool fresh;

	MUST_BE(0, open_client(w, &f));
	MUST_BE(0, vb_ep_open(f, 0, &ep));
	for (uint16_t i = first; i < first + 10; i++) {
		struct vb_msg m = {.tag = i};

		MUST_BE(0, vb_send_wait(ep, get(&w->b->word[0]), &m));
	}
	MUST(ep->self != get(&w->b->word[0]) && ep->self != get(&w->b->word[2]));
	set(&w->b->word[2], ep->self);
	if (first > 0) {
		MUST_BE(0, vb_region(f, 0, "word", 64, &at, &fresh));
		MUST(!fresh && at == get(&w->b->word[1]));
		MUST_BE(0, vb_faa64(ep, at, 1, &old));
		MUST(old == 5);
	}
	vb_ep_close(ep);
	MUST_BE(0, vb_fabric_close(f));
}

static void test_as_it_was(void **unused)
{
	struct world w;
	pid_t pid;

	(void)unused;
	state_open(&w, ",silence=30s,linger=30s");
	server_start(&w, 0, NULL);
	pid = client(&w, reader);
	await(get(&w.b->step[0]));
	ended(client(&w, writer));
	/* Its leave has come, too. */
	await(get(&w.b->server[0].members) == 1);
	again(&w, NULL);
	assert_int_equal(get(&w.b->server[0].members), 1);
	assert_int_equal(get(&w.b->server[0].boxes), 1);
	set(&w.b->step[1], 1);
	ended(client(&w, writer));
	again(&w, NULL);
	assert_int_equal(kill(pid, SIGCONT), 0);
	ended(pid);
	await(get(&w.b->server[0].members) == 0 && get(&w.b->server[0].boxes) == 0);
	state_close(&w);
}

/* Who died while the server was away is given up as others are. */
static void test_died_meanwhile(void **unused)
{
	struct world w;
	pid_t pid;

	(void)unused;
	state_open(&w, ",linger=300ms");
	server_start(&w, 0, NULL);
	pid = client(&w, reader);
	await(get(&w.b->step[0]));
	server_kill(&w, 0);
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	server_start(&w, 0, NULL);
	await(get(&w.b->server[0].up) && get(&w.b->server[0].members) == 0 &&
	      get(&w.b->server[0].boxes) == 0);
	/* Nor does the next one find it. */
	again(&w, NULL);
	assert_int_equal(get(&w.b->server[0].members), 0);
	state_close(&w);
}

/* ---- a server's own beginning ---- */

/* Each life asks with the same number; only the first one has made it. */
static void makes_own(struct world *w, struct vb_fabric *f)
{
	vb_addr at;
	bool fresh;

	MUST_BE(0, vb_region(f, 0, "own", 64, &at, &fresh));
	MUST(fresh == (add(&w->b->step[4]) == 1));
}

static void test_own_regions(void **unused)
{
	struct world w;

	(void)unused;
	state_open(&w, "");
	server_start(&w, 0, makes_own);
	await(get(&w.b->server[0].up));
	again(&w, makes_own);
	state_close(&w);
}

/* A space whose maker was killed before it had written the head: as large as one that is there. */
static void makes_half(struct world *w, struct vb_fabric *f)
{
	struct vb_region_info all[8];
	vb_addr at;
	bool fresh;
	int n;

	serve_locks(w, f);
	n = vb_regions(f, 0, all, 8);
	MUST(n > 0 && n <= 8);
	while (n-- > 0)
		if (strcmp(all[n].name, "lock:locks") == 0)
			break;
	MUST(n >= 0);
	MUST_BE(0, vb_region(f, 0, "lock:half", all[n].bytes, &at, &fresh));
	MUST(fresh);
}

static void finishes(struct world *w)
{
	struct vb_lock_space_params p = locks();
	struct vb_lock_client *me;
	struct vb_lock_space *space;
	struct vb_fabric *f;
	struct vb_grant g;

	p.name = "half";
	MUST_BE(0, open_client(w, &f));
	MUST_BE(0, vb_lock_space_open(f, &p, &space));
	MUST_BE(0, vb_lock_client_open(space, 0, &me));
	MUST_BE(0, vb_lock_acquire(me, 0, VB_EXCLUSIVE, WAIT_NS, &g));
	MUST_BE(0, vb_lock_release(me, &g));
	vb_lock_client_close(me);
	MUST_BE(0, vb_lock_space_close(space));
	/* For another size it is not theirs to finish, nor to have. */
	p.locks = 100 * LOCKS;
	MUST_BE(-EINVAL, vb_lock_space_open(f, &p, &space));
	MUST_BE(0, vb_fabric_close(f));
}

static void test_half_made(void **unused)
{
	struct world w;

	(void)unused;
	protocol = "dslr";
	state_open(&w, "");
	server_start(&w, 0, makes_half);
	await(get(&w.b->server[0].up));
	again(&w, serve_locks);
	ended(client(&w, finishes));
	ended(client(&w, finishes));
	state_close(&w);
}

/* Of the machine; both are over when a server has said that it is up. */
static uint64_t start_takes(struct world *w)
{
	uint64_t begun = vb_clock_gettime_ns();

	server_start(w, 0, NULL);
	await(get(&w->b->server[0].up));
	return vb_clock_gettime_ns() - begun;
}

/* Who was killed before it had waited has not waited; who goes on need not. */
static void test_settles_once(void **unused)
{
	const uint64_t settle_ns = 4000 * MS;
	char path[96];
	struct world w;

	(void)unused;
	state_open(&w, ",settle=4s");
	state_path(path, "state");
	server_start(&w, 0, NULL);
	await(access(path, F_OK) == 0);
	server_kill(&w, 0);
	assert_true(start_takes(&w) >= settle_ns);
	server_kill(&w, 0);
	assert_true(start_takes(&w) < settle_ns);
	state_close(&w);
}

/* ---- under load ---- */

#define CLIENTS 4
#define ENDS    5
#define SLACK   (1 * MS)

struct audited {
	uint64_t owner, until_ns, token, grants;
};
static struct audited *audit; /* [LOCKS], shared */

/* Whose grant is valid is alone, and has a larger token than all before. */
static void enter(const struct client_of *c, const struct vb_grant *g, uint64_t id)
{
	struct audited *a = &audit[g->lock];
	uint64_t before = __atomic_exchange_n(&a->owner, id, __ATOMIC_SEQ_CST);

	if (!vb_lock_valid(c->me, g))
		return;
	MUST(before == 0 || get(&a->until_ns) < vb_clock_gettime_ns() + SLACK);
	MUST(g->token > __atomic_exchange_n(&a->token, g->token, __ATOMIC_SEQ_CST));
	set(&a->until_ns, vb_clock_gettime_ns() + (g->valid_until_ns - vb_lock_now(c->me)));
	add(&a->grants);
}

static void loader(struct world *w)
{
	uint64_t id = (uint64_t)getpid(), n = 0;
	struct client_of c;

	come(w, &c);
	for (; !get(&w->b->step[0]); n++) {
		struct vb_grant g;
		int err = vb_lock_acquire(c.me, n % LOCKS, VB_EXCLUSIVE, 200 * MS, &g);

		MUST(err == 0 || err == -ETIMEDOUT || err == -VB_EPEERGONE || err == -VB_EUNKNOWN ||
		     err == -EAGAIN);
		if (err != 0) {
			MUST_BE(0, vb_ep_sleep(c.me->ep, MS));
			continue;
		}
		enter(&c, &g, id);
		for (volatile unsigned i = 0; i < 1000; i++)
			;
		(void)__atomic_compare_exchange_n(&audit[g.lock].owner, &id, 0, false,
						  __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
		id = (uint64_t)getpid();
		(void)vb_lock_release(c.me, &g);
	}
	leave(&c);
}

static uint64_t grants(void)
{
	uint64_t n = 0;

	for (unsigned i = 0; i < LOCKS; i++)
		n += get(&audit[i].grants);
	return n;
}

/* The servers are killed one after the other, and the first ones again. */
static void storm(const char *lock, unsigned servers)
{
	pid_t pid[CLIENTS];
	struct world w;
	uint64_t before;

	protocol = lock;
	lease_ns = 1000 * MS;
	nodes = (uint16_t)servers;
	memset(audit, 0, LOCKS * sizeof(*audit));
	state_open_of(&w, servers, "");
	servers_start(&w, serve_locks);
	for (unsigned i = 0; i < CLIENTS; i++)
		pid[i] = client(&w, loader);
	for (unsigned i = 0; i <= ENDS; i++) {
		before = grants();
		await(grants() > before + 20);
		if (i < ENDS)
			begins_again(&w, i % servers, serve_locks);
	}
	set(&w.b->step[0], 1);
	for (unsigned i = 0; i < CLIENTS; i++)
		ended(pid[i]);
	nodes = 1;
	state_close(&w);
}

static void test_storm(void **unused)
{
	(void)unused;
	storm("dslr", 1);
	storm("rpc", 1);
}

static void test_rolling(void **unused)
{
	(void)unused;
	storm("dslr", SERVERS);
	storm("shiftlock", SERVERS);
	storm("table", SERVERS);
}

/* ---- what is refused ---- */

static int opened(const struct world *w, const char *list, uint64_t node_bytes, const char *more,
		  char *why, size_t bytes)
{
	struct vb_fabric *f = NULL;
	char options[400];
	int err;

	snprintf(options, sizeof(options), "servers=%s,serve=1,key=%s,settle=1ms,state=%s%s", list,
		 w->key, state, more);
	vb_log_capture_begin(why, bytes);
	err = vb_fabric_open(
		&(struct vb_fabric_params){
			.fabric = "tcp", .options = options, .nodes = 1, .node_bytes = node_bytes},
		&f);
	vb_log_capture_end();
	if (err == 0)
		MUST_BE(0, vb_fabric_close(f));
	return err;
}

#define REFUSED(err, word, ...)                                                                    \
	do {                                                                                       \
		char why_[512] = "";                                                               \
		MUST_BE(err, opened(__VA_ARGS__, why_, sizeof(why_)));                             \
		if ((err) != 0 && strstr(why_, word) == NULL) {                                    \
			fprintf(stderr, "line %d: no '%s': %s\n", __LINE__, word, why_);           \
			_exit(1);                                                                  \
		}                                                                                  \
	} while (0)

static void overwrite(size_t at, const char *text)
{
	char path[96];
	int fd;

	state_path(path, "state");
	fd = open(path, O_WRONLY);
	MUST(fd >= 0 && pwrite(fd, text, strlen(text), (off_t)at) == (ssize_t)strlen(text));
	close(fd);
}

static size_t find_boot(void)
{
	char path[96], head[4096], boot[64];
	FILE *f = fopen("/proc/sys/kernel/random/boot_id", "r");
	const char *at;

	MUST(f != NULL && fgets(boot, sizeof(boot), f) != NULL);
	fclose(f);
	boot[strcspn(boot, "\n")] = '\0';
	state_path(path, "state");
	f = fopen(path, "r");
	MUST(f != NULL && fread(head, 1, sizeof(head), f) == sizeof(head));
	fclose(f);
	at = memmem(head, sizeof(head), boot, strlen(boot));
	MUST(at != NULL);
	return (size_t)(at - head);
}

static void refused(struct world *w)
{
	char path[96], list[160], key[] = "/tmp/elastic-key.XXXXXX", more[160];
	int fd = mkstemp(key);
	struct rlimit few;

	REFUSED(0, "", w, w->list, NODE_BYTES, "");
	REFUSED(0, "", w, w->list, NODE_BYTES, "");
	REFUSED(-EPROTO, "size", w, w->list, 2 * NODE_BYTES, "");
	REFUSED(-EPROTO, "clients", w, w->list, NODE_BYTES, ",clients=7");
	snprintf(list, sizeof(list), "localhost%s", strchr(w->list, ':'));
	REFUSED(-EPROTO, "name", w, list, NODE_BYTES, ",bind=127.0.0.1");
	snprintf(list, sizeof(list), "%s+127.0.0.1:1", w->list);
	MUST(fd >= 0 && write(fd, "0123456789abcdef0123456789abcdefg", 33) == 33);
	snprintf(more, sizeof(more), ",key=%s", key);
	REFUSED(-EPROTO, "key", w, w->list, NODE_BYTES, more);
	unlink(key);
	REFUSED(-ENOENT, "directory", w, w->list, NODE_BYTES, ",state=/nonexistent");
	MUST_BE(0, chmod(state, 0770));
	REFUSED(-EACCES, "chmod", w, w->list, NODE_BYTES, "");
	MUST_BE(0, chmod(state, 0700));
	REFUSED(-ENOTDIR, "directory", w, w->list, NODE_BYTES, ",state=/dev/null");
	REFUSED(-EINVAL, "client", w, w->list, NODE_BYTES, ",serve=0");
	state_path(path, "state");
	MUST_BE(0, truncate(path, 8192));
	REFUSED(-EPROTO, "size", w, w->list, NODE_BYTES, "");
	MUST_BE(0, truncate(path, 100));
	REFUSED(-EPROTO, "no state", w, w->list, NODE_BYTES, "");
	MUST_BE(0, unlink(path));
	REFUSED(0, "", w, w->list, NODE_BYTES, "");
	overwrite(0, "something");
	REFUSED(-EPROTO, "not touched", w, w->list, NODE_BYTES, "");
	MUST_BE(0, unlink(path));
	MUST_BE(0, mkfifo(path, 0600));
	REFUSED(-EACCES, "no file", w, w->list, NODE_BYTES, "");
	MUST_BE(0, unlink(path));
	MUST_BE(0, mkdir(path, 0700));
	REFUSED(-EISDIR, "cannot be opened", w, w->list, NODE_BYTES, "");
	MUST_BE(0, rmdir(path));
	MUST_BE(0, symlink("/dev/zero", path));
	REFUSED(-ELOOP, "cannot be opened", w, w->list, NODE_BYTES, "");
	MUST_BE(0, unlink(path));
	/* No room: nothing is left. */
	signal(SIGXFSZ, SIG_IGN);
	few = (struct rlimit){.rlim_cur = 1 << 20, .rlim_max = RLIM_INFINITY};
	MUST_BE(0, setrlimit(RLIMIT_FSIZE, &few));
	REFUSED(-EFBIG, "no room", w, w->list, NODE_BYTES, "");
	MUST(access(path, F_OK) != 0);
	few.rlim_cur = RLIM_INFINITY;
	MUST_BE(0, setrlimit(RLIMIT_FSIZE, &few));
}

static void test_refused(void **unused)
{
	struct world w;

	(void)unused;
	state_open(&w, "");
	ended(client(&w, refused));
	state_close(&w);
}

static void beside(struct world *w)
{
	char list[64];

	char path[96];

	snprintf(list, sizeof(list), "127.0.0.1:%u", test_port());
	REFUSED(-EBUSY, "in use", w, list, NODE_BYTES, "");
	/* Whoever has tidied up there. */
	state_path(path, "lock");
	(void)unlink(path);
	state_path(path, "state");
	MUST_BE(0, unlink(path));
	REFUSED(-EBUSY, "in use", w, list, NODE_BYTES, "");
}

static void test_two_servers(void **unused)
{
	struct world w;

	(void)unused;
	state_open(&w, "");
	server_start(&w, 0, NULL);
	await(get(&w.b->server[0].up));
	ended(client(&w, beside));
	state_close(&w);
}

/* ---- a space that is removed ---- */

static void makes_word(struct world *w)
{
	struct vb_fabric *f;
	struct vb_ep *ep;
	vb_addr at;
	uint64_t old;
	bool fresh;

	MUST_BE(0, open_client(w, &f));
	MUST_BE(0, vb_ep_open(f, 0, &ep));
	MUST_BE(0, vb_region(f, 0, "word", 64, &at, &fresh));
	MUST(fresh);
	MUST_BE(0, vb_faa64(ep, at, 5, &old));
	MUST(old == 0);
	vb_ep_close(ep);
	MUST_BE(0, vb_fabric_close(f));
}

static void user(struct world *w)
{
	struct client_of c;

	come(w, &c);
	MUST_BE(0, vb_lock_acquire(c.me, count / 4, VB_EXCLUSIVE, WAIT_NS, &(struct vb_grant){0}));
	set(&w->b->step[0], 1);
	raise(SIGSTOP);
	leave(&c);
}

static void remover(struct world *w)
{
	struct vb_fabric *f;
	struct vb_ep *ep;
	vb_addr at;
	uint64_t old;
	bool fresh;

	MUST_BE(0, open_client(w, &f));
	MUST_BE((int)get(&w->b->word[0]), vb_lock_space_remove(f, "locks"));
	MUST_BE(0, vb_ep_open(f, 0, &ep));
	MUST_BE(0, vb_region(f, 0, "word", 64, &at, &fresh));
	MUST_BE(0, vb_faa64(ep, at, 0, &old));
	MUST(!fresh && old == 5);
	if (get(&w->b->word[0]) == 0) /* what was there is not found again */
		MUST_BE(0, vb_region(f, 0, "again", 8 * count, &at, &fresh));
	for (uint64_t i = 0; i < count && get(&w->b->word[0]) == 0; i++)
		MUST(vb_read64(ep, at + 8 * i, &old) == 0 && old == 0);
	vb_ep_close(ep);
	MUST_BE(0, vb_fabric_close(f));
}

static void removal(struct world *w, int err)
{
	set(&w->b->word[0], (uint64_t)err);
	ended(client(w, remover));
}

/* Who uses it does so for the next process, too; and what is removed does not come back. */
static void test_removed(void **unused)
{
	struct world w;
	pid_t pid;

	(void)unused;
	protocol = "cas";
	count = 4096;
	state_open(&w, ",silence=30s,linger=30s");
	server_start(&w, 0, NULL);
	await(get(&w.b->server[0].up));
	pid = client(&w, user);
	await(get(&w.b->step[0]));
	ended(client(&w, makes_word));
	again(&w, NULL);
	removal(&w, -EBUSY);
	assert_int_equal(kill(pid, SIGCONT), 0);
	ended(pid);
	removal(&w, 0);
	again(&w, NULL);
	removal(&w, -ENOENT);
	set(&w.b->step[0], 0);
	pid = client(&w, user);
	await(get(&w.b->step[0]));
	assert_int_equal(kill(pid, SIGCONT), 0);
	ended(pid);
	state_close(&w);
}

/* ---- another life of the machine ---- */

static void test_another_boot(void **unused)
{
	struct world w;

	(void)unused;
	state_open(&w, "");
	server_start(&w, 0, NULL);
	await(get(&w.b->server[0].up));
	ended(client(&w, makes_word));
	server_kill(&w, 0);
	overwrite(find_boot(), "another");
	/* As without a state: with settle=0 it may not begin where one has been. */
	{
		pid_t pid = child();
		int status;

		if (pid == 0) {
			struct vb_fabric *f;

			_exit(open_server(&w, 0, &f) == -EEXIST ? 7 : 1);
		}
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_int_equal(WEXITSTATUS(status), 7);
	}
	forget_marks(&w);
	server_start(&w, 0, NULL);
	await(get(&w.b->server[0].up));
	ended(client(&w, makes_word));
	state_close(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_holder),         cmocka_unit_test(test_as_it_was),
		cmocka_unit_test(test_died_meanwhile), cmocka_unit_test(test_own_regions),
		cmocka_unit_test(test_half_made),      cmocka_unit_test(test_settles_once),
		cmocka_unit_test(test_storm),          cmocka_unit_test(test_rolling),
		cmocka_unit_test(test_refused),        cmocka_unit_test(test_two_servers),
		cmocka_unit_test(test_another_boot),   cmocka_unit_test(test_removed),
	};

	audit = mmap(NULL, LOCKS * sizeof(*audit), PROT_READ | PROT_WRITE,
		     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	vb_clock_init();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
