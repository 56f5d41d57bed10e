/* SPDX-License-Identifier: Apache-2.0 */
/* A server that keeps its state, killed and begun again. */
#ifndef TEST_NET_ELASTIC_STATE_H
#define TEST_NET_ELASTIC_STATE_H

#include <sys/stat.h>

#include "elastic.h"

static char state[64];

static inline void state_open_of(struct world *w, unsigned servers, const char *more)
{
	world_open(w, servers, more);
	w->states = true;
	for (unsigned i = servers; i-- > 0;) {
		snprintf(state, sizeof(state), "%s/s%u", w->dir, i);
		assert_int_equal(mkdir(state, 0700), 0);
	}
}

/* Here a verb that comes late because the machine is busy is no answer. */
static inline void state_open(struct world *w, const char *more)
{
	char text[64];

	snprintf(text, sizeof(text), ",bound=500ms%s", more);
	state_open_of(w, 1, text);
}

/* Of the first server. */
static inline void state_path(char path[96], const char *name)
{
	snprintf(path, 96, "%s/%s", state, name);
}

static inline void state_close(struct world *w)
{
	char path[96];

	for (unsigned i = 0; i < w->servers; i++) {
		snprintf(state, sizeof(state), "%s/s%u", w->dir, i);
		state_path(path, "state");
		(void)unlink(path);
		assert_int_equal(rmdir(state), 0); /* and nothing else is left */
	}
	world_close(w);
}

static inline void begins_again(struct world *w, unsigned i, with_fn with)
{
	server_kill(w, i);
	server_start(w, i, with);
	await(get(&w->b->server[i].up));
}

static inline void again(struct world *w, with_fn with)
{
	begins_again(w, 0, with);
}

/* A call that a cut link may refuse. */
#define UNTIL_0(ep, call)                                                                          \
	do {                                                                                       \
		uint64_t end_ = vb_clock_gettime_ns() + WAIT_NS;                                   \
		int err_;                                                                          \
		while ((err_ = (call)) != 0) {                                                     \
			MUST(err_ == -VB_EPEERGONE || err_ == -VB_EUNKNOWN || err_ == -EAGAIN ||   \
			     err_ == -ETIMEDOUT);                                                  \
			MUST(vb_clock_gettime_ns() < end_);                                        \
			MUST_BE(0, vb_ep_sleep(ep, MS));                                           \
		}                                                                                  \
	} while (0)

#endif
