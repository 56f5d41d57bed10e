/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finding devices and choosing one.
 *
 * Without a wish it is the first port that is active.  On Ethernet a GID stands for an IP address,
 * and the same address appears once per RoCE version: version 2 (routable, in UDP) is taken, and of
 * those the first IPv4 one, because a link-local IPv6 address is no good across subnets and some
 * cards' software fills in its GID first.  On InfiniBand LIDs do; the first GID goes along for
 * peers behind a router.
 *
 * What is a card.  Timers of a device made of software are those of its options, a card's firmware
 * may have its own.  Linux' two such devices name a vendor that is no maker's number: rxe (Soft-RoCE)
 * 0xffffff, siw 0x626d74.  rxe before Linux 5.6 said 0, as unfinished drivers of cards do; of these a
 * card has a bus device behind it in sysfs.  Whatever is not known to be software is a card.
 */
#define VB_LOG_ROOM "verbs"
#include "fabric/verbs/device.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "fabric/verbs/lib.h"
#include "fabric/verbs/ext.h"

const char *const verbs_gid_type_names[] = {"InfiniBand", "RoCE v1", "RoCE v2"};
const char *const verbs_link_names[] = {"InfiniBand", "Ethernet", "other"};
const char *const verbs_scope_names[] = {"none", "device", "global"};

#define VENDOR_RXE 0xffffffu
#define VENDOR_SIW 0x626d74u

static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

/* ---- what there is ---- */

static void read_gids(const struct verbs_lib *lib, struct ibv_context *ctx, struct verbs_device *d)
{
	struct ibv_gid_entry e[VERBS_GIDS_MAX * VERBS_PORTS_MAX];
	ssize_t n = lib->query_gid_table(ctx, e, VB_ARRAY_SIZE(e), 0, sizeof(e[0]));

	for (ssize_t i = 0; i < n; i++) {
		struct verbs_port *p;
		struct verbs_gid *g;

		if (e[i].port_num == 0 || e[i].port_num > d->n_ports)
			continue;
		p = &d->ports[e[i].port_num - 1];
		if (p->n_gids == VERBS_GIDS_MAX)
			continue;
		g = &p->gids[p->n_gids++];
		g->index = e[i].gid_index;
		g->type = e[i].gid_type == IBV_GID_TYPE_ROCE_V2   ? VERBS_GID_ROCE_V2
			  : e[i].gid_type == IBV_GID_TYPE_ROCE_V1 ? VERBS_GID_ROCE_V1
								  : VERBS_GID_IB;
		memcpy(g->raw, e[i].gid.raw, sizeof(g->raw));
		g->ipv4 = memcmp(g->raw, mapped, sizeof(mapped)) == 0;
	}
}

static uint32_t mtu_bytes(enum ibv_mtu mtu)
{
	return mtu >= IBV_MTU_256 && mtu <= IBV_MTU_4096 ? 128u << mtu : 0;
}

static void read_port(const struct verbs_lib *lib, struct ibv_context *ctx, struct verbs_port *p)
{
	static const char *const states[] = {"nop", "down", "init", "armed", "active", "deferred"};
	struct ibv_port_attr a;

	snprintf(p->state, sizeof(p->state), "unreadable");
	p->link = VERBS_LINK_OTHER;
	if (verbs_lib_query_port(lib, ctx, p->number, &a) != 0)
		return;
	p->active = a.state == IBV_PORT_ACTIVE;
	snprintf(p->state, sizeof(p->state), "%s",
		 (unsigned)a.state < VB_ARRAY_SIZE(states) ? states[a.state] : "unknown");
	p->link = a.link_layer == IBV_LINK_LAYER_ETHERNET     ? VERBS_LINK_ETHERNET
		  : a.link_layer == IBV_LINK_LAYER_INFINIBAND ? VERBS_LINK_IB
							      : VERBS_LINK_OTHER;
	p->mtu = mtu_bytes(a.active_mtu);
	p->mtu_max = mtu_bytes(a.max_mtu);
	p->lid = a.lid;
}

static bool is_card(const struct verbs_device *d)
{
	char path[sizeof("/sys/class/infiniband//device") + VERBS_NAME_MAX];

	if (d->vendor != 0)
		return d->vendor != VENDOR_RXE && d->vendor != VENDOR_SIW;
	snprintf(path, sizeof(path), "/sys/class/infiniband/%s", d->name);
	if (access(path, F_OK) != 0)
		return true;
	snprintf(path, sizeof(path), "/sys/class/infiniband/%s/device", d->name);
	return access(path, F_OK) == 0;
}

static void read_attributes(struct verbs_device *d, const struct ibv_device_attr *a)
{
	snprintf(d->firmware, sizeof(d->firmware), "%.63s", a->fw_ver);
	d->vendor = a->vendor_id;
	d->card = is_card(d);
	d->atomics = a->atomic_cap == IBV_ATOMIC_GLOB  ? VERBS_ATOMIC_GLOB
		     : a->atomic_cap == IBV_ATOMIC_HCA ? VERBS_ATOMIC_HCA
						       : VERBS_ATOMIC_NONE;
	d->max_rd_atomic = (uint32_t)a->max_qp_rd_atom;
	d->max_init_rd_atomic = (uint32_t)a->max_qp_init_rd_atom;
	d->max_qp = (uint32_t)a->max_qp;
	d->max_wr = (uint32_t)a->max_qp_wr;
	d->max_cqe = (uint32_t)a->max_cqe;
	d->max_srq_wr = (uint32_t)a->max_srq_wr;
	d->max_mr_bytes = a->max_mr_size;
	d->n_ports = a->phys_port_cnt < VERBS_PORTS_MAX ? a->phys_port_cnt : VERBS_PORTS_MAX;
}

static void read_device(const struct verbs_lib *lib, struct ibv_device *dev, struct verbs_device *d)
{
	struct ibv_context *ctx;
	struct ibv_device_attr a;
	int err;

	snprintf(d->name, sizeof(d->name), "%s", lib->get_device_name(dev));
	ctx = lib->open_device(dev);
	if (ctx == NULL) {
		snprintf(d->trouble, sizeof(d->trouble), "cannot be opened: %s", strerror(errno));
		return;
	}
	memset(&a, 0, sizeof(a));
	err = lib->query_device(ctx, &a);
	if (err != 0) {
		snprintf(d->trouble, sizeof(d->trouble), "cannot be asked: %s", strerror(err));
	} else {
		read_attributes(d, &a);
		for (uint32_t i = 0; i < d->n_ports; i++) {
			d->ports[i].number = (uint8_t)(i + 1);
			read_port(lib, ctx, &d->ports[i]);
		}
		read_gids(lib, ctx, d);
		d->extended = verbs_ext_probe(ctx);
	}
	lib->close_device(ctx);
}

int verbs_devices(struct verbs_device **list, unsigned *n, const char **why)
{
	const struct verbs_lib *lib = verbs_lib(why);
	struct ibv_device **all;
	int count = 0;

	*list = NULL;
	*n = 0;
	if (lib == NULL)
		return -ENODEV;
	*why = verbs_absent();
	if (*why != NULL)
		return -ENODEV;
	all = lib->get_device_list(&count);
	if (all == NULL || count <= 0) {
		*why = "the RDMA devices went away";
		if (all != NULL)
			lib->free_device_list(all);
		return -ENODEV;
	}
	*list = calloc((size_t)count, sizeof(**list));
	if (*list == NULL)
		*why = "no memory for the list of devices";
	for (int i = 0; *list != NULL && i < count; i++)
		read_device(lib, all[i], &(*list)[(*n)++]);
	lib->free_device_list(all);
	return *list != NULL ? 0 : -ENODEV;
}

char *verbs_gid_text(const struct verbs_gid *g, char *buf, unsigned size)
{
	if (inet_ntop(g->ipv4 ? AF_INET : AF_INET6, g->ipv4 ? g->raw + sizeof(mapped) : g->raw, buf,
		      size) == NULL)
		buf[0] = '\0';
	return buf;
}

/* ---- choosing ---- */

static bool gid_is_addr(const struct verbs_gid *g, const char *addr)
{
	uint8_t raw[16];

	if (inet_pton(AF_INET, addr, raw) == 1)
		return g->ipv4 && memcmp(g->raw + sizeof(mapped), raw, 4) == 0;
	return inet_pton(AF_INET6, addr, raw) == 1 && memcmp(g->raw, raw, sizeof(raw)) == 0;
}

/* How good a GID is on Ethernet; 0: no good. */
static unsigned gid_merit(const struct verbs_gid *g, const char *addr)
{
	if (g->type != VERBS_GID_ROCE_V2 || (addr != NULL && !gid_is_addr(g, addr)))
		return 0;
	return g->ipv4 ? 2 : 1;
}

static int choose_gid(const struct verbs_want *want, struct verbs_choice *c)
{
	const struct verbs_port *p = c->port;
	unsigned best = 0;

	c->gid = NULL;
	for (uint32_t i = 0; i < p->n_gids; i++) {
		const struct verbs_gid *g = &p->gids[i];

		if (want->gid >= 0) {
			if (g->index == (uint32_t)want->gid)
				c->gid = g;
		} else if (p->link == VERBS_LINK_ETHERNET) {
			unsigned merit = gid_merit(g, want->addr);

			if (merit > best) {
				best = merit;
				c->gid = g;
			}
		} else if (c->gid == NULL) {
			c->gid = g;
		}
	}
	if (c->gid != NULL || (want->gid < 0 && p->link == VERBS_LINK_IB))
		return 0;
	if (want->gid >= 0)
		return vb_fail(-EINVAL,
			       "%s port %u has no GID with index %d (option gid); `verbena doctor` "
			       "lists them",
			       c->device.name, p->number, want->gid);
	return vb_fail(
		-ENODEV,
		"%s port %u has no RoCE v2 GID%s%s: give its network interface an IP address, "
		"or choose one of its GIDs with gid=N (`verbena doctor` lists them)",
		c->device.name, p->number, want->addr != NULL ? " for " : "",
		want->addr != NULL ? want->addr : "");
}

/* The wanted port of a device, else its first active one; NULL. */
static const struct verbs_port *port_of(const struct verbs_device *d, uint8_t wanted)
{
	for (uint32_t i = 0; i < d->n_ports; i++) {
		if (wanted != 0 ? d->ports[i].number == wanted : d->ports[i].active)
			return &d->ports[i];
	}
	return NULL;
}

static int fail_port(const struct verbs_want *want, const struct verbs_device *d)
{
	if (d->trouble[0] != '\0')
		return vb_fail(-ENODEV, "device %s %s", d->name, d->trouble);
	if (want->port != 0)
		return vb_fail(-EINVAL, "device %s has ports 1 to %u, not %u", d->name, d->n_ports,
			       want->port);
	return vb_fail(-ENODEV,
		       "no port of %s is active (port 1 is %s): is the cable in, the network "
		       "interface up (`ip link`), the subnet manager running?",
		       d->name, d->n_ports > 0 ? d->ports[0].state : "not there");
}

static int choose_from(const struct verbs_want *want, const struct verbs_device *list, unsigned n,
		       struct verbs_choice *c)
{
	const struct verbs_device *seen = NULL;
	const struct verbs_port *p = NULL;

	for (unsigned i = 0; i < n && p == NULL; i++) {
		if (want->device != NULL && strcmp(want->device, list[i].name) != 0)
			continue;
		seen = &list[i];
		p = seen->trouble[0] == '\0' ? port_of(seen, want->port) : NULL;
	}
	if (seen == NULL)
		return vb_fail(-ENODEV,
			       "there is no RDMA device '%s'; the first of %u is '%s' (`verbena "
			       "doctor` lists all)",
			       want->device, n, list[0].name);
	if (p == NULL)
		return fail_port(want, seen);
	if (!p->active)
		return vb_fail(-ENODEV, "%s port %u is %s, not active (`ip link`, `rdma link`)",
			       seen->name, p->number, p->state);
	c->device = *seen;
	c->port = &c->device.ports[p - seen->ports];
	return choose_gid(want, c);
}

int verbs_choose(const struct verbs_want *want, struct verbs_choice *out)
{
	struct verbs_want w = *want;
	struct verbs_device *list;
	char name[VERBS_NAME_MAX];
	const char *why;
	unsigned n;
	int err;

	if (w.addr != NULL) {
		uint8_t port;

		err = verbs_lib_owner_of(w.addr, name, sizeof(name), &port);
		if (err != 0)
			return err;
		if ((w.device != NULL && strcmp(w.device, name) != 0) ||
		    (w.port != 0 && w.port != port))
			return vb_fail(-EINVAL,
				       "addr=%s is on %s port %u, which is not the device and "
				       "port that were asked for",
				       w.addr, name, port);
		w.device = name;
		w.port = port;
	}
	if (verbs_devices(&list, &n, &why) != 0)
		return vb_fail(-ENODEV, "no RDMA: %s", why);
	err = choose_from(&w, list, n, out);
	free(list);
	return err;
}
