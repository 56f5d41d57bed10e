/* SPDX-License-Identifier: Apache-2.0 */
/* See doctor.h.  Every check looks at the thing itself where it can: it opens the fabrics and runs
 * verbs instead of believing flags. */
#define VB_LOG_ROOM "doctor"
#include "lab/doctor.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "lab/run.h"
#include "fabric/fabric.h"
#include "lab/host.h"

enum verdict { OK, WARN, FAIL };

struct doctor {
	FILE *to;
	struct vb_host host;
	unsigned count[3];
};

static void say(struct doctor *d, enum verdict v, const char *what, const char *fmt, ...)
	VB_PRINTF(4, 5);

static void say(struct doctor *d, enum verdict v, const char *what, const char *fmt, ...)
{
	static const char *const words[] = {"ok  ", "warn", "fail"};
	va_list args;

	d->count[v]++;
	fprintf(d->to, "%s  %-12s ", words[v], what);
	va_start(args, fmt);
	vfprintf(d->to, fmt, args);
	va_end(args);
	fputc('\n', d->to);
}

static double mib(uint64_t bytes)
{
	return (double)bytes / (1 << 20);
}

static void check_atomics(struct doctor *d)
{
#if defined(__x86_64__)
	if (d->host.cmpxchg16b)
		say(d, OK, "atomics", "64-bit atomics and cmpxchg16b (128-bit)");
	else
		say(d, FAIL, "atomics",
		    "this CPU has no cmpxchg16b, which 128-bit atomics on shm "
		    "need; shiftlock runs only on the simulator here");
#elif defined(__aarch64__)
	say(d, OK, "atomics", "64-bit atomics, 128-bit by load-exclusive pairs");
#else
	say(d, WARN, "atomics", "this CPU is untested; the self-test below shows what works");
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
		say(d, FAIL, "clock",
		    "the clock runs backwards; leases cannot be judged: boot with "
		    "clocksource=hpet or mend the hypervisor's time stamp counter");
	else if (vb_clock.use_tsc)
		say(d, OK, "clock", "time stamp counter (kernel: %s), %" PRIu64 " ns a reading",
		    d->host.clocksource, ns);
	else
		say(d, ns > 200 ? WARN : OK, "clock",
		    "clock_gettime (kernel: %s), %" PRIu64 " ns a reading%s", d->host.clocksource,
		    ns,
		    ns > 200 ? ": short latencies will be blurred; a tsc clocksource would mend it"
			     : "");
}

static void check_cores(struct doctor *d)
{
	if (d->host.cores < 2)
		say(d, WARN, "cores",
		    "1 core: processes take turns, so contention between them is "
		    "not what it would be on a larger machine");
	else if (d->host.load1 > d->host.cores / 2.0)
		say(d, WARN, "cores",
		    "%u cores under a load of %.1f: others take time from the "
		    "measured processes; stop them or read tails with care",
		    d->host.cores, d->host.load1);
	else
		say(d, OK, "cores", "%u cores, load %.1f", d->host.cores, d->host.load1);
}

static void check_shm_size(struct doctor *d)
{
	struct statvfs fs;
	uint64_t size, room;

	if (statvfs("/dev/shm", &fs) != 0) {
		say(d, FAIL, "/dev/shm", "%s: mount a tmpfs there (mount -t tmpfs tmpfs /dev/shm)",
		    strerror(errno));
		return;
	}
	size = (uint64_t)fs.f_blocks * fs.f_frsize;
	room = (uint64_t)fs.f_bavail * fs.f_frsize;
	if (room < 64u << 20)
		say(d, room < 4u << 20 ? FAIL : WARN, "/dev/shm",
		    "%.0f of %.0f MiB free; enlarge it (mount -o remount,size=1g /dev/shm; docker "
		    "run "
		    "--shm-size=1g)",
		    mib(room), mib(size));
	else
		say(d, OK, "/dev/shm", "%.0f of %.0f MiB free", mib(room), mib(size));
}

static void check_memory(struct doctor *d)
{
	struct rlimit lock;
	uint64_t huge = vb_host_meminfo("HugePages_Total");
	char thp[64];

	if (d->host.mem_available == 0)
		say(d, WARN, "memory", "/proc/meminfo cannot be read; mount /proc");
	else if (d->host.mem_available < 512u << 20)
		say(d, WARN, "memory",
		    "%.0f MiB available: use fewer locks (16 bytes each) and "
		    "clients (100 KiB each)",
		    mib(d->host.mem_available));
	else
		say(d, OK, "memory", "%.0f MiB available of %.0f", mib(d->host.mem_available),
		    mib(d->host.mem_total));
	if (getrlimit(RLIMIT_MEMLOCK, &lock) == 0) {
		if (lock.rlim_cur == RLIM_INFINITY)
			say(d, OK, "memlock", "unlimited");
		else
			say(d, OK, "memlock",
			    "%.0f KiB (enough: nothing is pinned on shm and sim; RDMA "
			    "hardware will want `ulimit -l unlimited`)",
			    (double)lock.rlim_cur / 1024);
	}
	vb_host_read_line("/sys/kernel/mm/transparent_hugepage/shmem_enabled", thp, sizeof(thp));
	say(d, OK, "huge pages",
	    "%" PRIu64 " reserved; transparent for shared memory: %s (not needed)", huge,
	    thp[0] != '\0' ? thp : "unknown");
}

/* A segment is in use while somebody holds a shared lock on its file (fabric/shm_segment.c). */
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
		if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
			stale++;
			say(d, WARN, "segments",
			    "%s is left from a crashed run; remove it: rm '%s'", path, path);
		} else {
			used++;
		}
		close(fd);
	}
	closedir(dir);
	if (stale == 0)
		say(d, OK, "segments", "%u in use, none stale", used);
}

/* One of each kind of verb; NULL, or what went wrong. */
static const char *try_verbs(struct vb_fabric *f)
{
	struct vb_msg out = {.subject = 7, .len = 3, .data = "vb"}, in;
	struct vb_u128 old, three = {3, 4}, none = {0, 0};
	struct vb_ep *ep = NULL;
	const char *wrong = NULL;
	uint64_t word = 0;
	vb_addr at;
	bool fresh;

	if (vb_region(f, 0, "doctor", 64, &at, &fresh) != 0)
		return "no region can be made";
	if (vb_ep_open(f, 0, &ep) != 0)
		return "no endpoint can be opened";
	if (vb_faa64(ep, at, 5, &word) != 0 || word != 0 || vb_read64(ep, at, &word) != 0 ||
	    word != 5)
		wrong = "a 64-bit fetch-and-add did not add";
	else if (f->caps.flags & VB_CAP_MASKED128 &&
		 (vb_mfaa128(ep, at + 16, three, none, &old) != 0 ||
		  vb_mfaa128(ep, at + 16, none, none, &old) != 0 || !vb_u128_eq(old, three)))
		wrong = "a 128-bit fetch-and-add did not add";
	else if (f->caps.flags & VB_CAP_SEND &&
		 (vb_send_wait(ep, ep->self, &out) != 0 ||
		  (vb_ep_recv(ep, &in) != 0 &&
		   (vb_ep_wait(ep, vb_ep_now(ep) + 1000000000) != 0 || vb_ep_recv(ep, &in) != 0)) ||
		  in.subject != 7))
		wrong = "a message did not arrive";
	vb_ep_close(ep);
	return wrong;
}

static void check_fabric(struct doctor *d, const char *name)
{
	const struct vb_fabric_params p = {.fabric = name, .node_bytes = 1 << 20, .endpoints = 16};
	struct vb_fabric *f = NULL;
	const char *wrong;
	char why[256] = "";
	int err;

	vb_log_capture_begin(why, sizeof(why));
	err = vb_fabric_open(&p, &f);
	wrong = err == 0 ? try_verbs(f) : NULL;
	vb_log_capture_end();
	if (err)
		say(d, FAIL, name, "cannot be opened: %s", why[0] != '\0' ? why : vb_strerror(err));
	else if (wrong != NULL)
		say(d, FAIL, name, "%s%s%s; please report it with the output of `verbena doctor`",
		    wrong, why[0] != '\0' ? ": " : "", why);
	else
		say(d, OK, name, "opens; fetch-and-add, READ, %s%sSEND work",
		    f->caps.flags & VB_CAP_MASKED128 ? "128-bit atomics, " : "",
		    f->caps.flags & VB_CAP_SEND ? "" : "no ");
	if (f != NULL)
		vb_fabric_close(f);
}

int vb_doctor(FILE *to)
{
	struct doctor d = {.to = to};

	vb_host_probe(&d.host);
	fprintf(to, "verbena %s (%s) on %s, %s\n\n", vb_version(), vb_commit(), d.host.cpu,
		d.host.kernel);
	check_atomics(&d);
	check_clock(&d);
	check_cores(&d);
	check_memory(&d);
	check_shm_size(&d);
	check_stale(&d);
	check_fabric(&d, "shm");
	check_fabric(&d, "sim");
	fprintf(to, "\n%u ok, %u to watch, %u failed\n", d.count[OK], d.count[WARN], d.count[FAIL]);
	return d.count[FAIL] != 0 ? VB_EXIT_FAILED : VB_EXIT_OK;
}
