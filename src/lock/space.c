/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lock spaces: where the locks of a space lie.
 *
 * On each server node a space is one named region:
 *
 *	header (struct vb_lock_header) | entry 0 | entry 1 | ...
 *
 * with the entries `stride` bytes apart: the protocol's entry, and behind it, where the space has
 * fencing and the protocol has no token of its own, one 64-bit token word.  Lock i is entry i / N
 * on node i % N.
 */
#define VB_LOG_ROOM "lock"
#include "lock/lock.h"

#include <inttypes.h>
#include <xxhash.h>

#include "base/log.h"
#include "lock/proxy.h"
#include "lock/header.h"
#include "lock/protocols.h"

#define LOCKS_MAX      (1ull << 40)
#define LEASE_MIN_NS   10000ull
#define LEASE_BOUNDS   4 /* a verb that is as late as it can be takes a quarter of the lease */
#define LEASE_MAX_NS   (3600ull * 1000000000ull)
#define DRIFT_INIT_PPM 100u
#define DRIFT_MAX_PPM  10000u
#define CLAIMS_MOST    65536u

static int check_params(const struct vb_lock_space_params *p)
{
	if (!p->lock)
		return vb_fail(-EINVAL,
			       "no lock protocol was named: \"dslr\", say, in "
			       "vb_lock_space_params.lock (`verbena list` shows them all)");
	if (p->name != NULL && vb_lock_space_check(p->name) != 0)
		return -EINVAL;
	if (p->locks == 0 || p->locks > LOCKS_MAX)
		return vb_fail(-EINVAL, "%" PRIu64 " locks: a space has 1 to 2^40", p->locks);
	if (p->lease_ns && (p->lease_ns < LEASE_MIN_NS || p->lease_ns > LEASE_MAX_NS))
		return vb_fail(-EINVAL, "a lease of %" PRIu64 " ns: 10us to 3600s are allowed",
			       p->lease_ns);
	if (p->drift_ppm > DRIFT_MAX_PPM)
		return vb_fail(-EINVAL, "a clock drift of %u ppm: at most %u are allowed",
			       p->drift_ppm, DRIFT_MAX_PPM);
	if (p->claims > CLAIMS_MOST)
		return vb_fail(-EINVAL, "%u locks at a time for a client: at most %u are allowed",
			       p->claims, CLAIMS_MOST);
	return 0;
}

static const char *cap_name(uint32_t cap)
{
	switch (cap) {
	case VB_CAP_MASKED64:
		return "masked 64-bit atomics";
	case VB_CAP_MASKED128:
		return "masked 128-bit atomics";
	case VB_CAP_SEND:
		return "SEND/RECV";
	case VB_CAP_NOTIFY:
		return "notified WRITEs";
	default:
		return "a capability";
	}
}

/* Can the protocol run on this fabric, and does it need its portable variant? */
static int check_caps(struct vb_lock_space *s)
{
	uint32_t have = s->fabric->caps.flags;
	uint32_t missing = s->ops->needs & ~have;

	if (missing)
		return vb_fail(
			-EOPNOTSUPP,
			"'%s' needs %s, which this '%s' fabric lacks; choose another lock or "
			"fabric (`verbena list` shows what each has)",
			s->ops->name, cap_name(missing & -missing), s->fabric->ops->name);
	/* A lease must outlast a verb: see "Leases" in lock.h and each protocol's release. */
	if (s->ops->caps & VB_LOCK_SURVIVES && s->fabric->caps.verb_bound_ns > s->lease_ns / 2)
		return vb_fail(
			-EINVAL,
			"a lease of %" PRIu64 " ns is too short for this fabric, where a verb "
			"may take effect up to %" PRIu64 " ns late; take at least twice that%s%s",
			s->lease_ns, s->fabric->caps.verb_bound_ns,
			s->fabric->caps.bound_note != NULL ? ": " : "",
			s->fabric->caps.bound_note != NULL ? s->fabric->caps.bound_note : "");
	s->portable_mask = s->ops->wishes & ~have;
	if (s->portable_mask)
		vb_info("'%s' runs without %s: %s", s->ops->name,
			cap_name(s->portable_mask & -s->portable_mask), s->ops->portable);
	return 0;
}

/* Who comes after a fabric's memory has begun anew must find no grant that still holds. */
static int check_hold(const struct vb_lock_space *s)
{
	uint64_t most = s->fabric->caps.lease_max_ns;
	unsigned leases = s->ops->leases_max ? s->ops->leases_max(s) : 1;
	uint64_t hold;

	if (most == 0)
		return 0;
	if (s->ops->caps & VB_LOCK_READ_LEASE)
		return vb_fail(-EOPNOTSUPP,
			       "'%s' has leases of readers, which servers of this fabric do not "
			       "wait for when they begin again; take another lock",
			       s->ops->name);
	if (leases < s->ops->leases_behind)
		leases = s->ops->leases_behind;
	hold = s->lease_ns * leases;
	if (!(s->ops->caps & VB_LOCK_SURVIVES) || vb_lock_stretch(s, hold) <= most)
		return 0;
	return vb_fail(
		-EINVAL,
		"locks that are held for up to %" PRIu64
		" ns: the servers of this fabric wait for %" PRIu64
		" ns when they begin again (option settle); take shorter leases, or let them "
		"wait for longer",
		hold, most);
}

static uint64_t layout_hash(const struct vb_lock_space *s)
{
	char text[128];
	int n = snprintf(text, sizeof(text), "%s/%u/%u/%u/%u", s->ops->name, s->ops->entry_bytes,
			 s->stride, s->servers, s->portable_mask);

	return XXH64(text, (size_t)n, s->variant);
}

/* Held, node 0's first: removal begins and ends with that one (remove.c).  One that somebody has died in the middle of
 * removing is removed first; if others have it open he had died before he looked, and it is theirs until they close
 * it. */
static int hold_region(struct vb_lock_space *s, uint16_t node, const char *name, uint64_t bytes)
{
	struct vb_region_held held = {.at = 0};
	int err;

	while ((err = vb_region_hold(s->fabric, node, name, bytes, &held)) == -EOWNERDEAD) {
		vb_warn("lock space '%s' was being removed by a client that has died: it is now",
			s->name);
		err = vb_lock_space_end(s->fabric, s->name, true);
		if (err != 0 && err != -ENOENT)
			return err == -EBUSY ? -EAGAIN : err;
	}
	if (err == 0 || err == -EEXIST)
		s->held[node] = held;
	return err;
}

/* Makes or joins the region on one server node. */
static int open_region(struct vb_lock_space *s, uint16_t node, const char *options)
{
	uint64_t mine = (s->locks + s->servers - 1 - node) / s->servers;
	uint64_t more = s->ops->node_bytes ? s->ops->node_bytes(s) : 0;
	uint64_t bytes = sizeof(struct vb_lock_header) + mine * s->stride + more;
	char name[VB_LOCK_REGION];
	bool fresh;
	int err;

	vb_lock_part_region(VB_LOCK_LOCKS, s->name, 0, name);
	err = hold_region(s, node, name, bytes);
	if (err && err != -EEXIST)
		return err;
	fresh = s->held[node].fresh;
	s->header[node] = s->held[node].at;
	s->base[node] = s->header[node] + sizeof(struct vb_lock_header);
	if (err == 0 && fresh)
		vb_region_dense(s->fabric, s->header[node],
				sizeof(struct vb_lock_header) + mine * s->stride);
	return vb_lock_header_open(s, node,
				   err     ? VB_LOCK_OTHER_SIZE
				   : fresh ? VB_LOCK_FRESH
					   : VB_LOCK_THERE,
				   layout_hash(s), options);
}

static int parse_options(const struct vb_lock_ops *ops, const char *text, void **out)
{
	static const struct vb_opt none[] = {VB_OPT_END};
	const struct vb_opt *table = ops->options ? ops->options : none;

	if (ops->options_size) {
		*out = calloc(1, ops->options_size);
		if (!*out)
			return vb_fail(-ENOMEM, "no memory for a lock space");
		vb_opt_defaults(table, *out);
	}
	return vb_opt_parse_list(table, *out, text);
}

static int shape_of(const struct vb_lock_ops *ops, const void *options, uint16_t nodes,
		    struct vb_lock_shape *out)
{
	*out = (struct vb_lock_shape){.entry_bytes = ops->entry_bytes};
	return ops->shape ? ops->shape(options, nodes, out) : 0;
}

uint32_t vb_lock_entry_bytes(const struct vb_lock_ops *ops, const char *options, uint16_t nodes)
{
	struct vb_lock_shape shape;
	void *parsed = NULL;
	int err = 0;

	if (!ops->shape)
		return ops->entry_bytes;
	err = parse_options(ops, options, &parsed);
	if (err == 0)
		err = shape_of(ops, parsed, nodes, &shape);
	free(parsed);
	return err ? 0 : shape.entry_bytes;
}

/* Where each word of an entry is. */
static void lay_out(struct vb_lock_space *s, const struct vb_lock_shape *shape)
{
	uint32_t caps = s->ops->caps & ~(s->portable_mask != 0 ? s->ops->portable_lacks : 0);
	uint32_t bytes = shape->entry_bytes;

	s->variant = shape->variant;
	if (s->fencing && !(caps & VB_LOCK_TOKEN)) {
		s->token_offset = bytes;
		bytes += sizeof(uint64_t);
	}
	/* 16-byte entries must stay 16-byte aligned; 8-byte ones may be packed. */
	s->stride = shape->entry_bytes % 16 == 0 ? (bytes + 15) & ~15u : (bytes + 7) & ~7u;
}

/* Depends on nothing that processes of one fabric could see differently, since they must agree. */
uint64_t vb_lock_lease_init_ns(const struct vb_fabric *f)
{
	uint64_t usual = f->caps.flags & VB_CAP_VIRTUAL ? VB_LEASE_VIRTUAL_NS : VB_LEASE_REAL_NS;
	uint64_t needs = LEASE_BOUNDS * f->caps.verb_bound_ns;

	return usual > needs ? usual : needs;
}

static int fill(struct vb_lock_space *s, const struct vb_lock_space_params *p, bool own)
{
	struct vb_lock_shape shape;
	int err;

	s->locks = p->locks;
	s->servers = p->servers ? p->servers : 1;
	s->lease_ns = p->lease_ns ? p->lease_ns : vb_lock_lease_init_ns(s->fabric);
	s->drift_ppm = p->drift_ppm ? p->drift_ppm : DRIFT_INIT_PPM;
	s->claims = p->claims ? p->claims : VB_CLAIMS_MAX;
	s->fencing = p->fencing;
	s->visible = p->visible;
	s->name = strdup(p->name ? p->name : "locks");
	if (!s->name)
		return vb_fail(-ENOMEM, "no memory for a lock space");
	if (s->servers > s->fabric->nodes)
		return vb_fail(-EINVAL, "%u lock servers on a fabric of %u nodes", s->servers,
			       s->fabric->nodes);
	if (s->locks < s->servers)
		return vb_fail(-EINVAL, "%" PRIu64 " locks for %u servers: each needs one",
			       s->locks, s->servers);
	err = check_caps(s);
	if (err)
		return err;
	err = parse_options(s->ops, p->options, &s->options);
	if (err == 0)
		err = shape_of(s->ops, s->options, s->fabric->nodes, &shape);
	if (err)
		return err;
	err = check_hold(s);
	if (err)
		return err;
	lay_out(s, &shape);
	s->base = calloc(s->servers, sizeof(*s->base));
	s->header = calloc(s->servers, sizeof(*s->header));
	s->held = calloc(s->servers, sizeof(*s->held));
	s->hold_forks = s->fabric->forks;
	s->server_cache =
		calloc((size_t)s->servers * VB_LOCK_WORKERS_MAX, sizeof(*s->server_cache));
	s->worker_cache = calloc(s->servers, sizeof(*s->worker_cache));
	if (!s->base || !s->header || !s->held || !s->server_cache || !s->worker_cache)
		return vb_fail(-ENOMEM, "no memory for a lock space");
	for (uint16_t n = 0; err == 0 && n < s->servers; n++)
		if (!own || vb_local(s->fabric, vb_addr_make(n, 0), 1) != NULL)
			err = open_region(s, n, p->options);
	if (err == 0 && s->ops->open)
		err = s->ops->open(s);
	return err;
}

static void free_space(struct vb_lock_space *s)
{
	vb_lock_space_let_go(s);
	pthread_mutex_destroy(&s->ghost_lock);
	free(s->options);
	free(s->name);
	free(s->base);
	free(s->header);
	free(s->token_from);
	free(s->held);
	free(s->server_cache);
	free(s->worker_cache);
	free(s);
}

static int open_space(struct vb_fabric *fabric, const struct vb_lock_space_params *params, bool own,
		      struct vb_lock_space **out)
{
	const struct vb_lock_ops *ops;
	struct vb_lock_space *s;
	int err;

	err = vb_fabric_check(fabric);
	if (err == 0)
		err = check_params(params);
	if (err)
		return err;
	ops = vb_lock_find(params->lock);
	if (!ops)
		return vb_lock_unknown(params->lock);
	s = calloc(1, sizeof(*s));
	if (!s)
		return vb_fail(-ENOMEM, "no memory for a lock space");
	s->fabric = fabric;
	s->ops = ops;
	s->proxy_wait_ns = VB_FOREVER;
	pthread_mutex_init(&s->ghost_lock, NULL);
	vb_list_init(&s->ghosts);
	s->ghosts_forks = fabric->forks;
	err = fill(s, params, own);
	if (err) {
		free_space(s);
		return err;
	}
	s->opened = (struct vb_opened){.kind = "lock space", .name = s->name};
	vb_opened_note(fabric, &s->opened);
	*out = s;
	return 0;
}

int vb_lock_space_open(struct vb_fabric *fabric, const struct vb_lock_space_params *params,
		       struct vb_lock_space **out)
{
	VB_SCHED_INSIDE(vb_sched_here());

	if (vb_any_null(fabric, params, out))
		return -EINVAL;
	return open_space(fabric, params, false, out);
}

int vb_lock_space_open_own(struct vb_fabric *fabric, const struct vb_lock_space_params *params,
			   struct vb_lock_space **out)
{
	VB_SCHED_INSIDE(vb_sched_here());

	return open_space(fabric, params, true, out);
}

int vb_lock_space_close(struct vb_lock_space *s)
{
	VB_SCHED_INSIDE(vb_sched_here());
	int err;

	if (!s)
		return 0;
	err = vb_fabric_check(s->fabric);
	if (err == 0)
		err = vb_opened_check(s->fabric, s, "lock space", s->name);
	if (err)
		return err;
	vb_ghost_space_close(s);
	vb_opened_drop(&s->opened);
	free_space(s);
	return 0;
}
