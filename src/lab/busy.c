/* SPDX-License-Identifier: Apache-2.0 */
/* See busy.h.  Everything is read from /proc; what is not there counts as nothing. */
#include "lab/busy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "lab/host.h"

/* More threads that could run than cores, by more than a run of one thread per core makes. */
#define HEAVY_LOAD   1.5
#define HEAVY_OTHERS 0.25
#define HEAVY_STEAL  0.05

static uint64_t own_ns(int who)
{
	struct rusage u;

	if (getrusage(who, &u) != 0)
		return 0;
	return (uint64_t)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000000000ull +
	       (uint64_t)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1000ull;
}

/* The first line of /proc/stat, in ticks: user nice system idle iowait irq softirq steal.  What a
 * guest of ours runs is in user already. */
static void look_at_cpus(struct vb_busy_point *p)
{
	unsigned long long t[8] = {0};
	uint64_t tick_ns = 1000000000ull / (uint64_t)sysconf(_SC_CLK_TCK);
	char line[512];

	if (!vb_host_read_line("/proc/stat", line, sizeof(line)) ||
	    sscanf(line, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &t[0], &t[1], &t[2], &t[3],
		   &t[4], &t[5], &t[6], &t[7]) < 4)
		return;
	p->busy_ns = (t[0] + t[1] + t[2] + t[5] + t[6]) * tick_ns;
	p->steal_ns = t[7] * tick_ns;
}

void vb_busy_look(struct vb_busy_point *p)
{
	const char *total;
	char line[256];

	memset(p, 0, sizeof(*p));
	if (getloadavg(&p->load1, 1) != 1)
		p->load1 = 0;
	look_at_cpus(p);
	/* "some avg10=1.00 avg60=... total=MICROSECONDS" */
	if (vb_host_read_line("/proc/pressure/cpu", line, sizeof(line)) &&
	    (total = strstr(line, "total=")) != NULL)
		p->queued_ns = strtoull(total + strlen("total="), NULL, 10) * 1000;
	p->own_ns = own_ns(RUSAGE_SELF) + own_ns(RUSAGE_CHILDREN);
	p->wall_ns = vb_clock_gettime_ns();
}

/* Ticks are coarse, and not all of them are counted at the same moment. */
static double share(uint64_t part, uint64_t less, double of)
{
	double s = part > less ? (double)(part - less) / of : 0;

	return s < 1 ? s : 1;
}

struct vb_busy vb_busy_between(const struct vb_busy_point *begin, const struct vb_busy_point *end,
			       unsigned cores)
{
	double ns = (double)(end->wall_ns - begin->wall_ns);
	struct vb_busy l = {.known = ns > 0 && cores > 0,
			    .cores = cores,
			    .begin = begin->load1,
			    .end = end->load1,
			    .queued = -1};

	if (!l.known)
		return l;
	l.others = share(end->busy_ns - begin->busy_ns, end->own_ns - begin->own_ns, ns * cores);
	l.steal = share(end->steal_ns, begin->steal_ns, ns * cores);
	if (end->queued_ns != 0)
		l.queued = share(end->queued_ns, begin->queued_ns, ns);
	return l;
}

struct vb_busy vb_busy_since(const struct vb_busy_point *begin, bool group)
{
	long cores = sysconf(_SC_NPROCESSORS_ONLN);
	struct vb_busy_point end;
	struct vb_busy l;

	vb_busy_look(&end);
	l = vb_busy_between(begin, &end, cores > 0 ? (unsigned)cores : 1);
	if (group)
		l.others = -1;
	return l;
}

static double higher(const struct vb_busy *l)
{
	return l->begin > l->end ? l->begin : l->end;
}

bool vb_busy_is_heavy(const struct vb_busy *l)
{
	return l->known && (higher(l) > HEAVY_LOAD * l->cores || l->others > HEAVY_OTHERS ||
			    l->steal > HEAVY_STEAL);
}

const char *vb_busy_text(const struct vb_busy *l, char *buf, unsigned size)
{
	int n = snprintf(buf, size, "load %.*f on %u core%s", higher(l) < 10 ? 1 : 0, higher(l),
			 l->cores, l->cores == 1 ? "" : "s");

	if (l->others >= 0.01 && (unsigned)n < size)
		n += snprintf(buf + n, size - (unsigned)n, ", %.0f%% of their time for others",
			      100 * l->others);
	if (l->steal >= 0.01 && (unsigned)n < size)
		snprintf(buf + n, size - (unsigned)n, ", %.0f%% kept by the hypervisor",
			 100 * l->steal);
	return buf;
}

static json_t *known_json(double share)
{
	return share < 0 ? json_null() : json_real(share);
}

json_t *vb_busy_json(const struct vb_busy *l)
{
	if (!l->known)
		return json_null();
	return json_pack("{s:i,s:f,s:f,s:o,s:f,s:o,s:b}", "cores", (int)l->cores, "load_1min_begin",
			 l->begin, "load_1min_end", l->end, "others", known_json(l->others),
			 "steal", l->steal, "queued", known_json(l->queued), "heavy",
			 (int)vb_busy_is_heavy(l));
}
