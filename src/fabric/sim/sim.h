/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the simulator offers beyond the fabric interface: faults, the exact virtual time, the hash
 * of a run.  Everything is decided by the seed in vb_fabric_params.
 */
#ifndef VB_FABRIC_SIM_SIM_H
#define VB_FABRIC_SIM_SIM_H

#include "fabric/fabric.h"

extern const struct vb_fabric_ops vb_fabric_sim;

/* Chances are per await point (a posted batch) of a client that may be struck. */
struct vb_sim_faults {
	double die;   /* the task never runs again; what it posted may still land */
	double pause; /* before the doorbell or after the completion, evenly */
	uint64_t pause_min_ns, pause_max_ns;
	double pause_told; /* the same before a message: between what was done and what is told of it */
	/* Until a word comes round: a CAS before the doorbell until what it compares with, having
	 * been otherwise, is there once more; what else meets a word after the completion until it
	 * looks as it did, all of it or one half.  One client at a time. */
	double around;
	uint64_t around_max_ns;
	double stall; /* the same of a server (vb_sim_ep_stalls), which does not die; where it answers,
		       * half of that */
	uint64_t stall_min_ns, stall_max_ns;
	double server_die; /* such a server dies */
	double delay;      /* a verb is late by up to delay_max_ns, still within verb_bound_ns */
	uint64_t delay_max_ns;
	double tear;     /* a READ or WRITE above 16 bytes is split in time, up to 4 pieces */
	bool tear_words; /* ... above 8 bytes, between any two words, where 128 bits are not masked */
	double lose;     /* a completion is lost: -VB_EUNKNOWN; the verb ran or did not, evenly.
	                           * If not, what was posted behind it on its connection is lost
	                           * too */
	double early;    /* a completion is lost early: -VB_EUNKNOWN long before the verb takes
	                   * effect, within verb_bound_ns of its posting all the same.  What is
	                   * behind it in its doorbell is told the same and lands behind it; what
	                   * is posted later goes by another connection and may overtake it */
	uint32_t lose_ops; /* bit i: lose and early strike verbs of enum vb_op i alone, and what is
	                    * posted behind one that did not run is not lost; 0: they strike all */
	double deaf; /* the client hears nothing for up to deaf_max_ns: every completion in that
	                   * time is lost, as by `lose` */
	uint64_t deaf_max_ns;
	double nic_stall; /* the target's NIC stands still for up to nic_stall_max_ns */
	uint64_t nic_stall_max_ns;
	double partition; /* a pair of nodes is cut off for up to partition_max_ns; verbs that
	                           * do not get through within verb_bound_ns fail: -VB_EUNKNOWN */
	uint64_t partition_max_ns;
	double refuse; /* of these cuts: what is posted while the link is down fails at once,
	                * -VB_EPEERGONE, and is not executed, as on a network whose connection is
	                * known to be broken.  Such a cut begins while what has met it is under way */
	int64_t drift_max_ppb; /* each endpoint's clock drifts by a constant within +- this */
	bool node_clocks; /* the endpoints of a node have one clock, as those of a machine have */
	bool drift_edge;  /* ... by no less than that: one half of them runs fast, the other slow */
	uint64_t
		common_error_max_ns; /* what an endpoint takes for the common time (vb_ep_common_now)
	                               * wanders within +- this, each one's at a pace of its own */
};

/* Turns faults on or off (all zero) from now on.  What is said of clocks counts for
 * endpoints opened later. */
void vb_sim_set_faults(struct vb_fabric *f, const struct vb_sim_faults *faults);
/* The memory of a node is gone for good (vb_node_gone): verbs to it are refused.  Those under way still take effect,
 * where nobody sees it. */
void vb_sim_lose_node(struct vb_fabric *f, uint16_t node);
/* What the node's clients have under way to these others (bit i: node i) never takes effect, as when it goes. */
void vb_sim_lose_sent(struct vb_fabric *f, uint16_t node, uint64_t to);
/* All others take it for gone, and their verbs to it are refused; its own clients run on. */
void vb_sim_disown_node(struct vb_fabric *f, uint16_t node);
/* The node gives the endpoint up, as the home of an elastic cluster's client does: it is no more to all others, and of
 * what it posts, or has under way, nothing takes effect at that node.  Itself it runs on, and at all other nodes. */
void vb_sim_ep_disown(struct vb_ep *ep, uint16_t node);
bool vb_sim_ep_disowned(const struct vb_ep *ep);
/* As on shared memory (VB_CAP_INLINE): one verb after the other, no bound between a look at the
 * clock and its effect, and nothing lands any more of who has died, but for the part of a WRITE
 * that is there.  Before endpoints are opened. */
void vb_sim_as_memory(struct vb_fabric *f);
/*
 * Verbs to the memory of a client's own node (VB_CAP_NEAR_INLINE), or all and messages too (VB_CAP_INLINE), are
 * complete when vb_post returns, and nothing of the wire befalls them.  A verb's bound is what it was.
 * Before endpoints are opened.
 */
struct vb_sim_near {
	bool all;
	double turn; /* others have one behind such a verb, for up to turn_max_ns: who polls needs some */
	uint64_t turn_max_ns;
	double full; /* such a message finds no room: -EAGAIN */
};
void vb_sim_complete_near(struct vb_fabric *f, const struct vb_sim_near *near);
/* Only endpoints marked so die or pause; servers are not marked.  Only coroutines may use them
 * (the root task cannot die).  Once an endpoint is dead, each of its tasks ends at its next await
 * or when the one it is in ends; sends to it fail or vanish. */
void vb_sim_ep_mortal(struct vb_ep *ep, bool mortal);
/* Endpoints marked so stand still for a while (`stall`), and die of `server_die` alone. */
void vb_sim_ep_stalls(struct vb_ep *ep, bool stalls);
/* From the endpoint's next await point on it stands still until then. */
void vb_sim_ep_pause(struct vb_ep *ep, uint64_t until_ns);
bool vb_sim_ep_dead(const struct vb_ep *ep);
/* How many verbs of the endpoint may still change memory although its client was told that their
 * outcome is unknown. */
unsigned vb_sim_ep_adrift(const struct vb_ep *ep);
/* Called when an endpoint's client dies, on the scheduler's stack; with hooks on top, ep is the
 * lowest endpoint. */
void vb_sim_on_death(struct vb_fabric *f, void (*fn)(struct vb_ep *ep, void *arg), void *arg);

uint64_t vb_sim_now(struct vb_fabric *f);
/* xxh64 over every verb and message in the order and at the time they took effect. */
uint64_t vb_sim_trace_hash(struct vb_fabric *f);
uint64_t vb_sim_verbs(struct vb_fabric *f); /* verbs executed so far */
/* Of those that change memory or bring a message, how many took effect later than the bound that the fabric's
 * caps give by now: none, unless somebody has made that smaller than it is. */
uint64_t vb_sim_late_verbs(struct vb_fabric *f);
/* The client's CPU is busy for ns: think time, a handler's work. */
int vb_sim_compute(struct vb_ep *ep, uint64_t ns);

/*
 * ---- who chooses ----
 *
 * What time and the seed decide otherwise, a chooser may: which of the verbs under way takes effect
 * next, and what befalls whoever posts.  So all orders can be gone through (check/litmus).  Verbs of
 * one endpoint to one node keep what order the interface promises them.
 */
struct vb_sim_verb {
	vb_peer self;
	uint64_t number; /* among those that its endpoint has posted */
	uint16_t node;   /* whose memory, or whose receiver */
	uint8_t op;      /* enum vb_op */
	uint32_t len;    /* of what it touches there; 0: a message alone */
	vb_addr addr;
	vb_peer peer; /* of a message; VB_PEER_NONE */
	struct vb_u128 compare, compare_mask, swap;
};

enum vb_sim_strike {
	VB_SIM_SPARED,
	VB_SIM_DIES_BEFORE,   /* before the doorbell */
	VB_SIM_DIES_AFTER,    /* right after it: what was posted lands */
	VB_SIM_PAUSES_BEFORE, /* stands still before the doorbell */
	VB_SIM_PAUSES_AFTER,  /* ... after the completion */
	VB_SIM_LOSES_ANSWER,  /* the verbs run, and the outcome stays unknown */
	VB_SIM_LOSES_VERB,    /* they do not, and it stays unknown */
	VB_SIM_STRIKES
};

struct vb_sim_chooser {
	/* One of v[0] to v[n - 1] takes effect now, by its index.  n: time passes first, until the
	 * next timer (where timer_first), or to the last moment of a verb.  UINT_MAX: none, ever,
	 * for the run is about to be given up. */
	unsigned (*next)(void *ctx, const struct vb_sim_verb *v, unsigned n, bool timer_first);
	enum vb_sim_strike (*strike)(void *ctx, struct vb_ep *ep);
	void *ctx;
	uint64_t step_ns;  /* between two effects: more than a task needs to post its next verb */
	uint64_t pause_ns; /* of who is made to stand still */
};

/* From now on; NULL: time and the seed, as ever. */
void vb_sim_set_chooser(struct vb_fabric *f, const struct vb_sim_chooser *chooser);

struct vb_sim_source;

struct vb_sim_profile {
	const char *name, *summary;
	const char *sources; /* in short, for `verbena list` */
	/* Where each number is from (sources.c): its own, and what stands there neither is as in
	 * the profile that it is like. */
	const struct vb_sim_source *own;
	const char *like; /* or NULL */

	uint64_t one_way_ns;  /* request leaves the NIC until it reaches the other */
	uint64_t post_ns;     /* CPU: build the request, ring the doorbell */
	uint64_t poll_ns;     /* CPU: find the completion */
	uint64_t read_ns;     /* at the target: DMA read of up to one line */
	uint64_t write_ns;    /* at the target: until it is acknowledged */
	uint64_t atomic64_ns; /* at the target: read-modify-write, latency */
	uint64_t atomic128_ns;
	uint64_t word64_busy_ns; /* how long the next access to that word waits behind an atomic */
	uint64_t word128_busy_ns;
	uint64_t inbound_ns; /* between two requests served by one NIC: 1 / inbound rate */
	uint64_t outbound_ns;
	uint64_t handler_ns;    /* CPU of a two-sided handler per message */
	uint64_t line_ns;       /* each further 64 bytes on the wire */
	uint64_t verb_bound_ns; /* a verb takes effect within this time or never */
	/* Effects: 0 where a profile does not have them, or where they are switched off. */
	uint64_t atomics_unit_ns; /* between two atomics of one NIC, whatever their words */
	uint64_t word_ns;         /* instead of word64_busy_ns and word128_busy_ns */
	uint64_t answer_byte_ps;  /* of what a node answers, on its outgoing link */
	uint64_t port_byte_ps;    /* of what comes to a node, on its incoming link */
	/* ... of messages from client to client. */
	uint64_t connect_ns; /* until it can leave for another client than the one before */
	uint64_t hear_ns;   /* from when it is there, and acknowledged, until its receiver has it */
	uint64_t recv_ns;   /* CPU of the receiver: another buffer for the next one */
	uint64_t switch_ns; /* CPU: from one client of a core to another (option `cores`) */
	uint64_t own_ns;    /* from the doorbell to the effect in own memory (option `own`) */
	uint64_t answers_max; /* READs and atomics of one connection at a time; more wait at home */
	bool send_waits;      /* whoever sends it stands still until it is acknowledged */
	bool in_order;        /* an atomic whose word is busy keeps those behind it from the unit */
	bool masked64, masked128;
};

/*
 * ---- the numbers of a profile, one by one ----
 */
enum vb_sim_ground {
	VB_SIM_DATA_SHEET,
	VB_SIM_MEASURED,   /* by others, of single verbs of such a card */
	VB_SIM_DERIVED,    /* from a measurement: by arithmetic, or of a card of the same family */
	VB_SIM_CALIBRATED, /* so that the model shows what somebody has measured of more than a verb:
			    * what it decides has not been predicted */
	VB_SIM_CHOICE,     /* a setting, not a property */
	VB_SIM_ESTIMATE,   /* nobody has published it, that we know */
};
extern const char *const vb_sim_ground_names[];

struct vb_sim_source {
	const char *param; /* NULL: all that the profile has no other source for; the last one */
	enum vb_sim_ground ground;
	const char *text;
};

struct vb_sim_param {
	const char *name; /* with its unit, as the field's */
	/* By this name it can be switched off, and with it others of the same name; NULL: it is not of
	 * an effect. */
	const char *effect;
	const char *what; /* it does there */
	size_t offset;
	size_t bytes; /* of the field: 8, or 1 of a flag */
};
extern const struct vb_sim_param vb_sim_params[];
extern const unsigned vb_sim_param_count;

uint64_t vb_sim_value(const struct vb_sim_profile *p, const struct vb_sim_param *param);
/* NULL: there is none, which is a mistake in sources.c. */
const struct vb_sim_source *vb_sim_source_of(const struct vb_sim_profile *p, const char *param);
const struct vb_sim_profile *vb_sim_profile_find(const char *name); /* or NULL */
bool vb_sim_has_effect(const struct vb_sim_profile *p, const char *effect);
/* Switches effects off, or single parameters of them, NAME+NAME...; -EINVAL, said, where the profile does not
 * have one. */
int vb_sim_without(struct vb_sim_profile *p, const char *effects);

/* What a READ of 8 bytes takes when nothing is in its way. */
static inline uint64_t vb_sim_rtt_ns(const struct vb_sim_profile *p)
{
	return p->post_ns + p->outbound_ns + 2 * p->one_way_ns + p->inbound_ns + p->read_ns +
	       p->poll_ns;
}

extern const struct vb_sim_profile vb_sim_profiles[];
extern const unsigned vb_sim_profile_count;
/* The first so many are what the explorations of `verbena check` draw from.  Their number and order
 * never change, for kept seeds stand on them. */
#define VB_SIM_PROFILES_DRAWN 4u

#endif
