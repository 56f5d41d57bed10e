/* SPDX-License-Identifier: Apache-2.0 */
/* See doctor.h.  Every check looks at the thing itself where it can: it opens the fabrics and runs
 * verbs instead of believing flags. */
#define VB_LOG_ROOM "doctor"
#include "lab/doctor/doctor.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/opt.h"
#include "lab/run.h"
#include "fabric/fabric.h"
#include "fabric/shm/shm.h"
#include "lab/doctor/inner.h"

static double mib(uint64_t bytes)
{
	return (double)bytes / (1 << 20);
}

static void check_atomics(struct doctor *d)
{
#if defined(__x86_64__)
	if (d->host.cmpxchg16b)
		doctor_say(d, DOCTOR_OK, "atomics", "64-bit atomics and cmpxchg16b (128-bit)");
	else
		doctor_say(d, DOCTOR_FAIL, "atomics",
			   "this CPU has no cmpxchg16b, which 128-bit atomics on shm "
			   "need; shiftlock runs only on the simulator here");
#elif defined(__aarch64__)
	doctor_say(d, DOCTOR_OK, "atomics",
		   "64-bit and 128-bit atomics (caspal, or load-exclusive pairs)");
#else
	doctor_say(d, DOCTOR_WARN, "atomics",
		   "this CPU is untested; the self-test below shows what works");
#endif
}

static void check_clock(struct doctor *d)
{
	enum { READS = 10000 };
	uint64_t start, ns;
	bool back = false;

	vb_clock_init();
	start = vb_clock_gettime_ns();
	for (unsigned i = 0; i < READS; i++) {
		uint64_t a = vb_clock_ns();

		back |= vb_clock_ns() < a;
	}
	ns = (vb_clock_gettime_ns() - start) / (2 * READS);
	if (back)
		doctor_say(d, DOCTOR_FAIL, "clock",
			   "the clock runs backwards; leases cannot be judged: boot with "
			   "clocksource=hpet or mend the hypervisor's time stamp counter");
	else if (vb_clock.use_tsc)
		doctor_say(d, DOCTOR_OK, "clock",
			   "the CPU's counter (kernel: %s), %" PRIu64 " ns a reading",
			   d->host.clocksource, ns);
	else
		doctor_say(d, ns > 200 ? DOCTOR_WARN : DOCTOR_OK, "clock",
			   "clock_gettime (kernel: %s), %" PRIu64 " ns a reading%s",
			   d->host.clocksource, ns,
			   ns > 200 ? ": short latencies will be blurred; a tsc clocksource would "
				      "mend it"
				    : "");
}

static void check_cores(struct doctor *d)
{
	if (d->host.cores < 2)
		doctor_say(d, DOCTOR_WARN, "cores",
			   "1 core: processes take turns, so contention between them is "
			   "not what it would be on a larger machine");
	else if (d->host.load1 > d->host.cores / 2.0)
		doctor_say(d, DOCTOR_WARN, "cores",
			   "%u cores under a load of %.1f: others take time from the "
			   "measured processes; stop them or read tails with care",
			   d->host.cores, d->host.load1);
	else
		doctor_say(d, DOCTOR_OK, "cores", "%u cores, load %.1f", d->host.cores,
			   d->host.load1);
}

static void check_shm_size(struct doctor *d)
{
	struct statvfs fs;
	uint64_t size, room;

	if (statvfs("/dev/shm", &fs) != 0) {
		doctor_say(d, DOCTOR_FAIL, "/dev/shm",
			   "%s: mount a tmpfs there (mount -t tmpfs tmpfs /dev/shm)",
			   strerror(errno));
		return;
	}
	size = (uint64_t)fs.f_blocks * fs.f_frsize;
	room = (uint64_t)fs.f_bavail * fs.f_frsize;
	if (room < 64u << 20)
		doctor_say(d, room < 4u << 20 ? DOCTOR_FAIL : DOCTOR_WARN, "/dev/shm",
			   "%.0f of %.0f MiB free; enlarge it (mount -o remount,size=1g /dev/shm; "
			   "docker run --shm-size=1g)",
			   mib(room), mib(size));
	else
		doctor_say(d, DOCTOR_OK, "/dev/shm", "%.0f of %.0f MiB free", mib(room), mib(size));
}

static void check_memory(struct doctor *d)
{
	struct rlimit lock;
	uint64_t huge = vb_host_meminfo("HugePages_Total");
	char thp[64];

	if (d->host.mem_available == 0)
		doctor_say(d, DOCTOR_WARN, "memory", "/proc/meminfo cannot be read; mount /proc");
	else if (d->host.mem_available < 512u << 20)
		doctor_say(d, DOCTOR_WARN, "memory",
			   "%.0f MiB available: use fewer locks (16 bytes each) and "
			   "clients (100 KiB each)",
			   mib(d->host.mem_available));
	else
		doctor_say(d, DOCTOR_OK, "memory", "%.0f MiB available of %.0f",
			   mib(d->host.mem_available), mib(d->host.mem_total));
	if (getrlimit(RLIMIT_MEMLOCK, &lock) == 0) {
		if (lock.rlim_cur == RLIM_INFINITY)
			doctor_say(d, DOCTOR_OK, "memlock", "unlimited");
		else
			doctor_say(d, DOCTOR_OK, "memlock",
				   "%.0f KiB (nothing is pinned on shm and sim; `verbs` wants "
				   "more, see below)",
				   (double)lock.rlim_cur / 1024);
	}
	vb_host_read_line("/sys/kernel/mm/transparent_hugepage/shmem_enabled", thp, sizeof(thp));
	doctor_say(d, DOCTOR_OK, "huge pages",
		   "%" PRIu64 " reserved; transparent for shared memory: %s (not needed)", huge,
		   thp[0] != '\0' ? thp : "unknown");
}

/* When a segment is in use: fabric/shm/name.c. */
static void check_stale(struct doctor *d)
{
	DIR *dir = opendir("/dev/shm");
	unsigned stale = 0, used = 0;
	struct dirent *e;

	if (dir == NULL)
		return;
	while ((e = readdir(dir)) != NULL) {
		char path[sizeof("/dev/shm/") + sizeof(e->d_name)];
		int fd;

		if (strncmp(e->d_name, "verbena.", 8) != 0)
			continue;
		snprintf(path, sizeof(path), "/dev/shm/%s", e->d_name);
		fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
		if (fd < 0)
			continue;
		if (flock(fd, LOCK_EX | LOCK_NB) == 0 && vb_shm_left_over(fd)) {
			stale++;
			doctor_say(d, DOCTOR_WARN, "segments",
				   "%s is left from a crashed run; remove it: rm '%s'", path, path);
		} else {
			used++;
		}
		close(fd);
	}
	closedir(dir);
	if (stale == 0)
		doctor_say(d, DOCTOR_OK, "segments", "%u in use, none stale", used);
}

static const struct vb_opt need_table[] = {
	VB_OPT_STRING(struct vb_doctor_opts, need, "need", "FABRIC,...", NULL,
		      "fabrics that have to work here: one that is absent counts as failed"),
	VB_OPT_STRING(struct vb_doctor_opts, verbs, "verbs-options", "KEY=VALUE,...", NULL,
		      "options of verbs, as you will use them, to try each port with: how long a "
		      "request is repeated depends on timeout and retries"),
	VB_OPT_END,
};

VB_OPT_GROUPS(vb_doctor_groups, struct vb_doctor_opts, {"What is needed", need_table, NULL})

static bool need_is_right(const char *need)
{
	const char *rest = need != NULL ? need : "", *name;
	char one[32];
	size_t len;

	while ((len = doctor_next_name(&rest, &name)) != 0) {
		snprintf(one, sizeof(one), "%.*s", (int)(len < sizeof(one) ? len : sizeof(one) - 1),
			 name);
		if (vb_fabric_find(one) == NULL) {
			vb_error("--need %s: there is no fabric '%s'; `verbena list` shows them",
				 need, one);
			return false;
		}
	}
	return true;
}

/* Of a build without verbs nothing is known. */
static bool verbs_is_right(const char *options)
{
	const struct vb_fabric_ops *ops = vb_fabric_find("verbs");
	void *parsed;
	bool right;

	if (options == NULL || ops->options == NULL)
		return true;
	parsed = calloc(1, ops->options_size);
	right = parsed != NULL && vb_opt_parse_list(ops->options, parsed, options) == 0;
	free(parsed);
	return right;
}

int vb_doctor(FILE *to, const struct vb_doctor_opts *opts)
{
	struct doctor d = {.to = to, .need = opts->need, .verbs = opts->verbs};

	if (!need_is_right(opts->need) || !verbs_is_right(opts->verbs))
		return VB_EXIT_USAGE;
	vb_host_probe(&d.host);
	fprintf(to, "verbena %s (%s) on %s, %s\n\n", vb_version(), vb_commit(), d.host.cpu,
		d.host.kernel);
	check_atomics(&d);
	check_clock(&d);
	check_cores(&d);
	check_memory(&d);
	check_shm_size(&d);
	check_stale(&d);
	doctor_fabric(&d, "shm", "shm", NULL);
	doctor_fabric(&d, "sim", "sim", NULL);
	doctor_rdma(&d);
	/* Not by the CPU, and patiently: it is not about a loaded machine's pace. */
	doctor_fabric(&d, "tcp", "tcp", "local=wire,bound=1s");
	doctor_ucx(&d);
	fprintf(to, "\n%u ok, %u to watch, %u failed, %u absent\n", d.count[DOCTOR_OK],
		d.count[DOCTOR_WARN], d.count[DOCTOR_FAIL], d.count[DOCTOR_NONE]);
	return d.count[DOCTOR_FAIL] != 0 ? VB_EXIT_FAILED : VB_EXIT_OK;
}
