/* SPDX-License-Identifier: Apache-2.0 */
/* RDMA devices, their ports and GIDs: for choosing one, and for `verbena doctor`.  Needs no headers
 * of libibverbs. */
#ifndef VB_FABRIC_VERBS_DEVICE_H
#define VB_FABRIC_VERBS_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#define VERBS_NAME_MAX  64
#define VERBS_PORTS_MAX 4
#define VERBS_GIDS_MAX  32

enum verbs_gid_type { VERBS_GID_IB, VERBS_GID_ROCE_V1, VERBS_GID_ROCE_V2 };
enum verbs_link { VERBS_LINK_IB, VERBS_LINK_ETHERNET, VERBS_LINK_OTHER };
enum verbs_scope { VERBS_ATOMIC_NONE, VERBS_ATOMIC_HCA, VERBS_ATOMIC_GLOB };

extern const char *const verbs_gid_type_names[];
extern const char *const verbs_link_names[];
extern const char *const verbs_scope_names[];

struct verbs_gid {
	uint32_t index;
	enum verbs_gid_type type;
	bool ipv4; /* an IPv4 address, mapped into IPv6 */
	uint8_t raw[16];
};

struct verbs_port {
	uint8_t number;
	bool active;
	char state[16]; /* "active", "down", ... */
	enum verbs_link link;
	uint32_t mtu, mtu_max; /* bytes */
	uint16_t lid;
	uint32_t n_gids;
	struct verbs_gid gids[VERBS_GIDS_MAX];
};

struct verbs_device {
	char name[VERBS_NAME_MAX];
	char firmware[64];
	char trouble[96]; /* why it cannot be opened; then nothing below is known */
	uint32_t vendor;  /* as the device says; a card's is its maker's number */
	bool card;        /* not known to be made of software; see device.c */
	enum verbs_scope atomics;
	uint32_t max_rd_atomic;      /* outstanding READs and atomics that a peer may have here */
	uint32_t max_init_rd_atomic; /* that we may have at a peer */
	uint32_t max_qp, max_wr, max_cqe, max_srq_wr;
	uint64_t max_mr_bytes;
	uint32_t extended; /* VB_CAP_MASKED64, VB_CAP_MASKED128 that the device does itself */
	uint32_t n_ports;
	struct verbs_port ports[VERBS_PORTS_MAX];
};

/* All devices; *list is malloc'ed.  0, or -ENODEV with the reason in *why (not logged). */
int verbs_devices(struct verbs_device **list, unsigned *n, const char **why);

/* "192.0.2.1" or "fe80::1"; buf of at least 46 bytes; returns buf. */
char *verbs_gid_text(const struct verbs_gid *g, char *buf, unsigned size);

/* What the user asked for; NULL, 0: no wish. */
struct verbs_want {
	const char *device, *addr;
	uint8_t port;
	int gid; /* -1: no wish */
};

struct verbs_choice {
	struct verbs_device device;
	const struct verbs_port *port; /* in `device` */
	const struct verbs_gid *gid;   /* in `port`; NULL: LID alone (InfiniBand) */
};

/* Chooses device, port and GID: 0; -ENODEV, -EINVAL, said with what there is. */
int verbs_choose(const struct verbs_want *want, struct verbs_choice *out);

/* How long a request to a peer that is not there lasts on a device. */
struct verbs_give_up {
	bool card;
	unsigned timeout, retries;     /* with these options */
	uint64_t least_ns, formula_ns; /* what InfiniBand's specification allows: from, to */
	uint64_t took_ns;              /* the longest of several */
	uint64_t bound_ns;             /* verb_bound_ns with the options given */
};

/* Sends to a queue pair of this port that does not exist, and waits for the device to give up.
 * `options` are the fabric's (device, port, timeout, retries ...; NULL: none).  0; -errno, said. */
int verbs_measure(const char *options, struct verbs_give_up *out);

#endif
