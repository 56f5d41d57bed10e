/* SPDX-License-Identifier: Apache-2.0 */
/* See inner.h.  From the kernel upwards, so that the first line that is not ok is the cause
 * of those below it. */
#include "lab/doctor/inner.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/log.h"
#include "fabric/fabric.h"
#include "fabric/verbs/device.h"

/* Less than this cannot hold the memory of one node at its default size. */
#define PINNED_MIN      (64u << 20)
#define CAP_IPC_LOCK_AT 14 /* bit in CapEff: pins as much as it likes */
#define DEVICES_MAX     64
#define VENDOR_NVIDIA   "0x15b3"

static bool module_loaded(const char *name)
{
	char path[64];

	snprintf(path, sizeof(path), "/sys/module/%s", name);
	return access(path, F_OK) == 0;
}

/* Is a card there that speaks RDMA but has no driver?  Knows the commonest maker only. */
static bool find_card(char *slot, size_t size)
{
	DIR *dir = opendir("/sys/bus/pci/devices");
	struct dirent *e;
	bool found = false;

	if (dir == NULL)
		return false;
	while (!found && (e = readdir(dir)) != NULL) {
		char path[sizeof("/sys/bus/pci/devices//vendor") + sizeof(e->d_name)], vendor[16];

		if (e->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/vendor", e->d_name);
		found = vb_host_read_line(path, vendor, sizeof(vendor)) &&
			strcmp(vendor, VENDOR_NVIDIA) == 0;
		if (found)
			snprintf(slot, size, "%.31s", e->d_name);
	}
	closedir(dir);
	return found;
}

/* What the kernel lacks, and what brings it. */
static void say_kernel(struct doctor *d)
{
	enum doctor_verdict v = doctor_absent(d, "verbs");
	char drivers[128], card[32];
	struct utsname u;
	bool built;

	uname(&u);
	snprintf(drivers, sizeof(drivers), "/lib/modules/%.64s/kernel/drivers/infiniband",
		 u.release);
	built = access(drivers, F_OK) == 0;
	if (module_loaded("ib_uverbs"))
		doctor_say(
			d, v, "rdma kernel",
			"ib_uverbs is loaded, but no driver has made a device: load the card's "
			"(modprobe mlx5_ib), or make one of software (modprobe rdma_rxe; rdma link "
			"add rxe0 type rxe netdev INTERFACE)");
	else if (built)
		doctor_say(
			d, v, "rdma kernel",
			"the modules are there but not loaded: modprobe -a ib_uverbs rdma_ucm and "
			"the card's driver (mlx5_ib), or rdma_rxe for Soft-RoCE");
	else
		doctor_say(d, v, "rdma kernel",
			   "Linux %.64s has no RDMA modules (%s): boot a distribution's stock "
			   "kernel, or try Verbena in a guest that has them: scripts/rdma-vm.sh",
			   u.release, drivers);
	if (find_card(card, sizeof(card)))
		doctor_say(d, DOCTOR_WARN, "rdma card",
			   "a card of NVIDIA (Mellanox) in slot %s has no RDMA driver: modprobe "
			   "mlx5_ib (or mlx4_ib)",
			   card);
}

static void say_cm(struct doctor *d)
{
	if (access("/dev/infiniband/rdma_cm", R_OK | W_OK) == 0)
		doctor_say(d, DOCTOR_OK, "rdma kernel", "ib_uverbs, rdma_ucm");
	else
		doctor_say(d, DOCTOR_WARN, "rdma kernel",
			   "ib_uverbs, but no /dev/infiniband/rdma_cm that this user may open: "
			   "devices are found by name only, not with addr=; modprobe rdma_ucm");
}

static bool pins_at_will(void)
{
	char line[128];
	bool may = false;
	FILE *f = fopen("/proc/self/status", "re");

	while (f != NULL && fgets(line, sizeof(line), f) != NULL)
		if (strncmp(line, "CapEff:", 7) == 0)
			may = strtoull(line + 7, NULL, 16) >> CAP_IPC_LOCK_AT & 1;
	if (f != NULL)
		fclose(f);
	return may;
}

static void say_pinning(struct doctor *d)
{
	struct rlimit lock = {0, 0};
	uint64_t huge = vb_host_meminfo("HugePages_Free");

	getrlimit(RLIMIT_MEMLOCK, &lock);
	if (lock.rlim_cur == RLIM_INFINITY || pins_at_will())
		doctor_say(d, DOCTOR_OK, "rdma memory", "no limit on pinned memory");
	else if (lock.rlim_cur < PINNED_MIN)
		doctor_say(d, DOCTOR_FAIL, "rdma memory",
			   "only %" PRIu64 " KiB may be pinned, a node has %u MiB by default: "
			   "`ulimit -l unlimited`, for good in /etc/security/limits.conf (* - "
			   "memlock unlimited), in a service LimitMEMLOCK=infinity",
			   (uint64_t)lock.rlim_cur / 1024, PINNED_MIN >> 20);
	else
		doctor_say(d, DOCTOR_OK, "rdma memory", "%" PRIu64 " MiB may be pinned",
			   (uint64_t)lock.rlim_cur >> 20);
	if (huge == 0)
		doctor_say(d, DOCTOR_OK, "rdma pages",
			   "no huge pages are free; for gigabytes of locks they spare the card's "
			   "address translation (sysctl vm.nr_hugepages=N)");
	else
		doctor_say(d, DOCTOR_OK, "rdma pages", "%" PRIu64 " huge pages are free", huge);
}

static void say_device(struct doctor *d, const struct verbs_device *dev)
{
	const uint32_t both = VB_CAP_MASKED64 | VB_CAP_MASKED128;

	if (dev->atomics == VERBS_ATOMIC_NONE)
		doctor_say(
			d, DOCTOR_FAIL, dev->name,
			"firmware %s has no atomics, which every lock needs: use another device, "
			"or --fabric ucx",
			dev->firmware);
	else if (dev->max_rd_atomic == 0 || dev->max_init_rd_atomic == 0)
		doctor_say(d, DOCTOR_FAIL, dev->name,
			   "no READ or atomic may be outstanding (limits %u here, %u at a peer): "
			   "update the firmware, or use another device",
			   dev->max_rd_atomic, dev->max_init_rd_atomic);
	else
		doctor_say(d, DOCTOR_OK, dev->name,
			   "atomic among %s; %s; %u READs and atomics outstanding (%u at a peer)",
			   dev->atomics == VERBS_ATOMIC_GLOB
				   ? "the device's and the CPU's"
				   : "the device's own (local words go through it too)",
			   (dev->extended & both) == both ? "masked and 128-bit atomics"
			   : dev->extended & VB_CAP_MASKED64
				   ? "masked 64-bit atomics, portable 128-bit ones"
				   : "no masked atomics (locks use their portable form)",
			   dev->max_rd_atomic, dev->max_init_rd_atomic);
}

static bool link_local(const struct verbs_gid *g)
{
	return g->raw[0] == 0xfe && (g->raw[1] & 0xc0) == 0x80;
}

static void say_gids(struct doctor *d, const char *what, const struct verbs_port *p)
{
	unsigned v2 = 0, routable = 0;
	char text[64];

	for (uint32_t i = 0; i < p->n_gids; i++) {
		const struct verbs_gid *g = &p->gids[i];

		v2 += g->type == VERBS_GID_ROCE_V2;
		routable += g->type == VERBS_GID_ROCE_V2 && !link_local(g);
		doctor_say(d, DOCTOR_OK, what, "gid %u: %s %s%s", g->index,
			   verbs_gid_type_names[g->type], verbs_gid_text(g, text, sizeof(text)),
			   p->link == VERBS_LINK_ETHERNET && g->type == VERBS_GID_ROCE_V1
				   ? " (not routable, not used)"
				   : "");
	}
	if (p->link == VERBS_LINK_ETHERNET && routable == 0)
		doctor_say(
			d, v2 == 0 ? DOCTOR_FAIL : DOCTOR_WARN, what,
			"%s: give the network interface an address (rdma link names it; ip addr "
			"add 192.0.2.1/24 dev INTERFACE)%s",
			v2 == 0 ? "no GID of RoCE v2"
				: "only a link-local GID, which reaches this network and no other",
			v2 == 0 ? ", and turn RoCE v2 on if the card has it off" : "");
}

/* True if the port can be used. */
static bool say_port(struct doctor *d, const char *what, const struct verbs_port *p,
		     bool others_active)
{
	if (!p->active) {
		doctor_say(d, others_active ? DOCTOR_WARN : DOCTOR_FAIL, what, "%s, %s: %s",
			   verbs_link_names[p->link], p->state,
			   p->link == VERBS_LINK_IB
				   ? "check the cable, and that a subnet manager runs (opensm)"
				   : "bring its network interface up (rdma link names it; ip link "
				     "set INTERFACE up) and check the cable");
		return false;
	}
	doctor_say(d, DOCTOR_OK, what, "%s, active, MTU %u of %u%s", verbs_link_names[p->link],
		   p->mtu, p->mtu_max,
		   p->mtu < p->mtu_max && p->link == VERBS_LINK_ETHERNET
			   ? " (long READs gain from a larger one: ip link set INTERFACE mtu 4200)"
			   : "");
	say_gids(d, what, p);
	return true;
}

/* Why a device cannot be opened: libibverbs' own errno is that of the last place it looked in. */
static void say_trouble(struct doctor *d, enum doctor_verdict v, const struct verbs_device *dev)
{
	for (unsigned i = 0; i < DEVICES_MAX; i++) {
		char path[64], name[VERBS_NAME_MAX];

		snprintf(path, sizeof(path), "/sys/class/infiniband_verbs/uverbs%u/ibdev", i);
		if (!vb_host_read_line(path, name, sizeof(name)) || strcmp(name, dev->name) != 0)
			continue;
		snprintf(path, sizeof(path), "/dev/infiniband/uverbs%u", i);
		if (access(path, R_OK | W_OK) == 0)
			break;
		doctor_say(
			d, v, dev->name,
			"%s: %s; this user has to read and write it: join the group that owns it "
			"(rdma), or in a container pass --device /dev/infiniband",
			path, strerror(errno));
		return;
	}
	doctor_say(d, v, dev->name,
		   "%s; is its driver for user space installed (Debian: ibverbs-providers)?",
		   dev->trouble);
}

/* With a quarter on top: it is the longest of a few. */
static unsigned long long measured_ms(const struct verbs_give_up *g)
{
	return (g->took_ns + g->took_ns / 4) / 1000000 + 1;
}

/* A request whose peer is gone: the time until the device stops repeating it is what leases rest
 * on when a process stands still.  What a card does with its options nobody knows before. */
static void say_give_up(struct doctor *d, const char *what, const char *options)
{
	char why[512] = "", took[16], least[16], formula[16], bound[16], pass[160] = "";
	struct verbs_give_up g;
	enum doctor_verdict v;
	int err;

	vb_log_capture_begin(why, sizeof(why));
	err = verbs_measure(options, &g);
	vb_log_capture_end();
	if (err != 0) {
		doctor_say(d, DOCTOR_WARN, what,
			   "how long it repeats what nobody answers cannot be measured: %s; leases "
			   "below a second are refused on cards",
			   why[0] != '\0' ? why : vb_strerror(err));
		return;
	}
	v = g.took_ns > g.bound_ns ? DOCTOR_FAIL : DOCTOR_OK;
	if (g.card || v != DOCTOR_OK)
		snprintf(pass, sizeof(pass),
			 "%s: give the fabric measured=%llums with these timeout and retries%s",
			 v == DOCTOR_OK ? "" : ": longer than leases allow for", measured_ms(&g),
			 v == DOCTOR_OK ? ", and leases can be shorter than a second" : "");
	doctor_say(d, v, what,
		   "gives up after %s (timeout=%u,retries=%u: %s to %s by the specification; bound "
		   "%s)%s",
		   vb_format_ns(took, sizeof(took), (double)g.took_ns), g.timeout, g.retries,
		   vb_format_ns(least, sizeof(least), (double)g.least_ns),
		   vb_format_ns(formula, sizeof(formula), (double)g.formula_ns),
		   vb_format_ns(bound, sizeof(bound), (double)g.bound_ns), pass);
}

static void check_device(struct doctor *d, const struct verbs_device *dev, bool others_active)
{
	if (dev->trouble[0] != '\0') {
		say_trouble(d, others_active ? DOCTOR_WARN : DOCTOR_FAIL, dev);
		return;
	}
	say_device(d, dev);
	for (uint32_t i = 0; i < dev->n_ports; i++) {
		char what[VERBS_NAME_MAX + 16], label[VERBS_NAME_MAX + 24], options[512];

		snprintf(what, sizeof(what), "%s/%u", dev->name, dev->ports[i].number);
		if (!say_port(d, what, &dev->ports[i], others_active))
			continue;
		snprintf(label, sizeof(label), "verbs %s", what);
		snprintf(options, sizeof(options), "%.400s%sdevice=%s,port=%u",
			 d->verbs != NULL ? d->verbs : "", d->verbs != NULL ? "," : "", dev->name,
			 dev->ports[i].number);
		doctor_fabric(d, label, "verbs", options);
		say_give_up(d, label, options);
	}
}

static bool any_active(const struct verbs_device *list, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		for (uint32_t p = 0; list[i].trouble[0] == '\0' && p < list[i].n_ports; p++)
			if (list[i].ports[p].active)
				return true;
	return false;
}

void doctor_rdma(struct doctor *d)
{
	struct verbs_device *list = NULL;
	const char *why = NULL;
	unsigned n = 0;
	bool active;

	if (verbs_devices(&list, &n, &why) != 0) {
		doctor_say(d, doctor_absent(d, "verbs"), "rdma", "%s", why);
		if (access("/sys/class/infiniband", F_OK) != 0)
			say_kernel(d);
		return;
	}
	say_cm(d);
	say_pinning(d);
	active = any_active(list, n);
	for (unsigned i = 0; i < n; i++)
		check_device(d, &list[i], active);
	free(list);
}
