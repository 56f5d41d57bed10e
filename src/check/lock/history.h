/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Histories of locks: every call and how it ended, for whoever wants to judge a run himself.
 *
 * One history is for all clients of a run, also in forked processes: it lies in memory that they
 * share.  It stands before the space's watch and passes on what it hears.  When it is full,
 * nothing more goes into it; what is in it is a beginning of the run, and can be judged as that.
 *
 * A *process* is one life of a client; who dies comes back as another process.  Of one process
 * and lock, calls follow each other.
 */
#ifndef VB_CHECK_LOCK_HISTORY_H
#define VB_CHECK_LOCK_HISTORY_H

#include "check/lines.h"
#include "check/lock/record.h"

enum vb_lock_call {
	VB_LOCK_CALL_ACQUIRE,
	VB_LOCK_CALL_CONVERT,
	VB_LOCK_CALL_RELEASE,
	VB_LOCK_CALL_ABANDON
};
enum vb_lock_event_type {
	VB_LOCK_EVENT_INVOKE,
	VB_LOCK_EVENT_OK,
	VB_LOCK_EVENT_FAIL,
	VB_LOCK_EVENT_INFO
};

struct vb_lock_event {
	uint64_t at_ns, lock;
	uint64_t token, valid_until_ns; /* of a grant; 0 and VB_FOREVER: it has none */
	uint32_t process, client;
	uint8_t type, call, mode; /* enum vb_lock_event_type, vb_lock_call, vb_mode */
	uint8_t lost;             /* the grant had ended before (-VB_ELOST) */
	int32_t err;              /* of a failure, 0: not known; not told to others but in words */
};

struct vb_lock_history;

/* At most so many events, of clients with an index below this.  -ENOMEM, said. */
int vb_lock_history_open(uint64_t most, unsigned clients, struct vb_lock_history **out);
void vb_lock_history_close(struct vb_lock_history *h);
/* Set space->watch to this, `next` being what it was; NULL: nobody. */
const struct vb_lock_watch *vb_lock_history_watch(struct vb_lock_history *h,
						  const struct vb_lock_watch *next);
void vb_lock_history_client_died(struct vb_lock_history *h, unsigned client);
/* How many events there are, and whether there was no room for more. */
uint64_t vb_lock_history_count(const struct vb_lock_history *h, bool *full);
/* The next event from *at on, in the order in which they happened; NULL: there is none. */
const struct vb_lock_event *vb_lock_history_next(const struct vb_lock_history *h, uint64_t *at);
/* Appends one; false: no room. */
bool vb_lock_history_add(struct vb_lock_history *h, const struct vb_lock_event *e);

/* JSON lines; doc/histories.md has the fields.  -errno, said. */
int vb_lock_history_write(const struct vb_lock_history *h, bool fencing, FILE *to);
/* Is the line that is at hand the first of such a history? */
bool vb_lock_history_is_next(const struct vb_lines *lines);
/* *fencing: every exclusive grant has a token.  -EINVAL names the line. */
int vb_lock_history_read(struct vb_lines *lines, struct vb_lock_history **out, bool *fencing);

struct vb_lock_verdict {
	uint64_t events, grants, locks;
	struct vb_audit_counts audit; /* by rule of the auditor, those that a history shows */
	char *story;                  /* NULL: nothing was found; free() */
};

/*
 * Judges all of them as one run.  0, also when something was found; -ENOMEM, -EINVAL (an answer to
 * no call, two calls of one process and lock at once): said.
 */
int vb_lock_history_judge(const struct vb_lock_history *const *parts, unsigned n, bool fencing,
			  struct vb_lock_verdict *out);

#endif
