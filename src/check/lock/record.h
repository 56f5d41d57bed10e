/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The auditor for processes that share no memory: each records its grants as they happen, and one
 * of them judges all records when the run is over.
 *
 * The rules are those of audit.h but for `stuck`, which only a driver can see while it happens.  A
 * grant is recorded before anybody uses it, and its end before it is given back, so that what is
 * recorded lies within what was true: two records that overlap are two holders.  Clocks of different
 * machines agree to within an error that the cluster knows.  What is judged is only what holds
 * whichever way they err: with a large error less is seen, and nothing is seen that was not.
 */
#ifndef VB_CHECK_LOCK_RECORD_H
#define VB_CHECK_LOCK_RECORD_H

#include "check/lock/audit.h"

enum vb_record_end {
	VB_RECORD_OPEN,      /* not given back when the run ended, or its process died */
	VB_RECORD_RELEASED,  /* the release reported success */
	VB_RECORD_LOST,      /* -VB_ELOST */
	VB_RECORD_FAILED,    /* another error */
	VB_RECORD_ABANDONED, /* vb_lock_abandon */
	VB_RECORD_CONVERTED, /* held on in another mode, which is a grant of its own here */
	VB_RECORD_ENDS
};

/* One grant.  Times are the recording process's time base, or the judge's once they were moved. */
struct vb_record_grant {
	uint64_t lock, token;
	uint64_t called_ns;
	uint64_t queued_ns; /* 0: was never queued */
	uint64_t granted_ns;
	uint64_t valid_until_ns; /* VB_FOREVER: no lease */
	uint64_t left_ns;        /* when its release began; VB_FOREVER: it did not */
	uint32_t client;
	uint16_t node;
	uint8_t mode, end; /* enum vb_mode, enum vb_record_end */
};

struct vb_record;

/*
 * clients: vb_lock_client.index is below this.  claims: of each client, as its space has them.
 * most: grants that are kept (later ones are counted and not kept); memory is taken as it is used.
 * -ENOMEM (said).  For the clients of one thread.
 */
int vb_record_open(unsigned clients, unsigned claims, uint64_t most, struct vb_record **out);
void vb_record_close(struct vb_record *r);
const struct vb_lock_watch *vb_record_watch(struct vb_record *r);
/* What is kept, until close; *missed: grants beyond `most`. */
struct vb_record_grant *vb_record_grants(struct vb_record *r, uint64_t *n, uint64_t *missed);
/* Moves all times by offset_ns, to another process's time base. */
void vb_record_move(struct vb_record_grant *grants, uint64_t n, int64_t offset_ns);

struct vb_record_part {
	const struct vb_record_grant *grants;
	uint64_t n;
	uint64_t error_ns; /* of its clock against the judge's */
};

struct vb_record_case {
	uint64_t locks;
	unsigned clients;
	bool fencing;
	uint64_t epoch_ns; /* what stories count their times from */
};

/* What cannot be a record of this case (of a peer, say): false. */
bool vb_record_is_sane(const struct vb_record_case *c, const struct vb_record_grant *g);

/* Judges; *story is malloc'ed, the first violations readably, or NULL if there are none.
 * -ENOMEM. */
int vb_record_judge(const struct vb_record_case *c, const struct vb_record_part *parts,
		    unsigned n_parts, struct vb_audit_counts *out, char **story);

#endif
