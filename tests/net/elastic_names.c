/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of servers of an elastic cluster that stand for nothing yet, or for another address later.  What they stand for
 * this file says itself, in place of the C library.
 */
#include <dlfcn.h>
#include <netdb.h>

#include "elastic.h"

#define PATIENT ",bound=2s"

/* In shared memory: what b.test stands for, "" for nothing. */
static char (*b_test)[16];

int getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
		struct addrinfo **out)
{
	int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
	char at[16];

	*(void **)&real = dlsym(RTLD_NEXT, "getaddrinfo");
	if (host == NULL || strcmp(host, "b.test") != 0)
		return real(host, port, hints, out);
	memcpy(at, *b_test, sizeof(at));
	if ((hints->ai_flags & AI_NUMERICHOST) || at[0] == '\0')
		return EAI_NONAME;
	return real(at, port, hints, out);
}

/* Of two servers the second has a name, and listens at 127.0.0.2. */
static void names_open(struct world *w, const char *stands_for)
{
	char *colon;

	world_open(w, 2, PATIENT);
	strcpy(*b_test, stands_for);
	colon = strrchr(w->list, ':');
	memmove(strchr(w->list, '+') + 1 + strlen("b.test"), colon, strlen(colon) + 1);
	memcpy(strchr(w->list, '+') + 1, "b.test", strlen("b.test"));
	server_start(w, 0, NULL);
	await(get(&w->b->server[0].up));
	snprintf(w->more, sizeof(w->more), PATIENT ",bind=127.0.0.2");
}

/* A client that has come before reaches it when its name stands for where it is. */
static void comes_later(const char *stands_for)
{
	struct world w;
	pid_t pid;

	names_open(&w, stands_for);
	pid = child();
	if (pid == 0) {
		struct vb_fabric *f;
		struct vb_ep *ep;
		vb_addr at;
		bool fresh;

		MUST_BE(0, open_client(&w, &f));
		MUST_BE(0, vb_ep_open(f, 0, &ep));
		MUST_BE(-VB_EPEERGONE, vb_send_wait(ep, vb_peer_make(1, 1), &(struct vb_msg){0}));
		add(&w.b->step[0]);
		while (!get(&w.b->step[1]))
			MUST_BE(0, vb_ep_sleep(ep, MS));
		net_of(f)->core->answer_ns = WAIT_NS;
		MUST_BE(0, vb_region(f, 1, "word", 64, &at, &fresh));
		vb_ep_close(ep);
		MUST_BE(0, vb_fabric_close(f));
		_exit(0);
	}
	await(get(&w.b->step[0]));
	server_start(&w, 1, NULL);
	await(get(&w.b->server[1].up));
	usleep(300000); /* it has tried more than once by then */
	strcpy(*b_test, "127.0.0.2");
	add(&w.b->step[1]);
	ended(pid);
	world_close(&w);
}

static void test_no_address_yet(void **state)
{
	(void)state;
	comes_later("");
}

static void test_moves(void **state)
{
	(void)state;
	comes_later("127.0.0.3");
}

/* Of which none does there is nothing to wait for. */
static void test_no_address_at_all(void **state)
{
	struct world w;
	pid_t pid;

	names_open(&w, "");
	pid = child();
	if (pid == 0) {
		struct vb_fabric *f;

		snprintf(w.list, sizeof(w.list), "b.test:1+b.test:2");
		MUST_BE(-EINVAL, open_client(&w, &f));
		/* Nor where this process could listen. */
		snprintf(w.list, sizeof(w.list), "127.0.0.1:1+b.test:2");
		snprintf(w.more, sizeof(w.more), PATIENT);
		MUST_BE(-EINVAL, open_server(&w, 1, &f));
		snprintf(w.list, sizeof(w.list), "127.0.0.1:http");
		MUST_BE(-EINVAL, open_client(&w, &f));
		_exit(0);
	}
	ended(pid);
	world_close(&w);
	(void)state;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_no_address_yet),
		cmocka_unit_test(test_moves),
		cmocka_unit_test(test_no_address_at_all),
	};

	b_test = mmap(NULL, sizeof(*b_test), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	if (b_test == MAP_FAILED)
		return 1;
	vb_clock_init();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
