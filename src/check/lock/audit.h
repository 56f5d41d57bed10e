/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lock auditor: is told every call and outcome (struct vb_lock_watch) and knows
 * what must not happen.
 *
 *   mode-conflict     two valid grants of one lock whose modes exclude each other
 *   expired-grant     a grant whose validity was already over when it was given
 *   foreign-release   a release that reported success although the lock was somebody else's by then
 *   token-order       a fencing token not larger than one granted before it
 *   bypass            more incompatible grants passed a queued client than its protocol allows
 *   oldest-denied     a deadlock policy that spares the oldest turned it down
 *   needless-recovery a lock was recovered although nobody had died or been late
 *   overdue           a call came back long after its deadline, or after its task was cancelled
 *   adrift            a call came back while a verb of its was under way that may change the lock
 *   stuck             somebody waits for ever although nothing is wrong any more
 *   guarded-write     a store that remembers tokens refused a holder that had just looked, or took a
 *                     write over another's
 *   told-late         a hold that is kept was lost, and its holder told later than is promised
 *   kept-on           a grant was renewed that nobody keeps (any more), nor renews
 *   wrong-error       a call returned what it may not
 *
 * All its state is flat and lies in memory that forked processes share, so one auditor watches many
 * processes: a grant is entered before anybody uses it and taken out before it is given back, and
 * the machine's clock (or sim's virtual time) is common.  A process killed between the two leaves
 * entries behind; vb_audit_client_died says so.  Grants whose validity has run out are nobody's.
 */
#ifndef VB_CHECK_LOCK_AUDIT_H
#define VB_CHECK_LOCK_AUDIT_H

#include <stdio.h>

#include "lock/observe.h"

enum vb_audit_rule {
	VB_AUDIT_MODE_CONFLICT,
	VB_AUDIT_EXPIRED_GRANT,
	VB_AUDIT_FOREIGN_RELEASE,
	VB_AUDIT_TOKEN_ORDER,
	VB_AUDIT_BYPASS,
	VB_AUDIT_OLDEST_DENIED,
	VB_AUDIT_NEEDLESS_RECOVERY,
	VB_AUDIT_OVERDUE,
	VB_AUDIT_ADRIFT,
	VB_AUDIT_STUCK,
	VB_AUDIT_GUARDED_WRITE,
	VB_AUDIT_TOLD_LATE,
	VB_AUDIT_KEPT_ON,
	VB_AUDIT_WRONG_ERROR,
	VB_AUDIT_RULES
};
extern const char *const vb_audit_rule_names[VB_AUDIT_RULES];

struct vb_audit;

struct vb_audit_params {
	uint64_t locks;
	unsigned clients; /* vb_lock_client.index is below this */
	unsigned claims;  /* of each client, as its space has them; 0 means VB_CLAIMS_MAX */
	const struct vb_lock_ops *ops;
	const struct vb_lock_space *space; /* for bounds that options decide; NULL: the defaults */
	bool fencing;
	bool bypass; /* judge the bypass bound (exact only in sim; measured anyway) */
};

struct vb_audit_counts {
	uint64_t checked_ops; /* grants looked at */
	uint64_t violations, by_rule[VB_AUDIT_RULES];
	uint64_t forgiven[VB_AUDIT_RULES]; /* broken, and not judged (vb_audit_forgive) */
	uint64_t max_bypass;
	uint64_t lost; /* releases that reported -VB_ELOST */
};

/* -ENOMEM.  One auditor for one space. */
int vb_audit_open(const struct vb_audit_params *p, struct vb_audit **out);
/* A space with an auditor, who does not watch it yet.  -error, said; then what is not NULL is open. */
int vb_audit_open_space(struct vb_fabric *f, const struct vb_lock_space_params *p, unsigned clients,
			bool bypass, struct vb_lock_space **space, struct vb_audit **out);
void vb_audit_close(struct vb_audit *a);
/* Set space->watch to this before clients do anything. */
const struct vb_lock_watch *vb_audit_watch(struct vb_audit *a);
void vb_audit_client_died(struct vb_audit *a, unsigned client);
/* For rules that only the driver can judge (from oldest-denied on). text: one line. */
void vb_audit_violation(struct vb_audit *a, enum vb_audit_rule rule, unsigned client, uint64_t lock,
			const char *text);
/* What is only counted from now on: bit i is rule i. */
void vb_audit_forgive(struct vb_audit *a, unsigned rules);
void vb_audit_counts(const struct vb_audit *a, struct vb_audit_counts *out);
/* The first violations (at most 16 are kept), each as a readable story. */
void vb_audit_print(const struct vb_audit *a, FILE *to);

#endif
