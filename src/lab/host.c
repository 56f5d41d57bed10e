/* SPDX-License-Identifier: Apache-2.0 */
/* See host.h.  Everything is read from /proc and /sys; what is not there is left empty. */
#include "lab/host.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

bool vb_host_read_line(const char *path, char *buf, unsigned size)
{
	FILE *f = fopen(path, "re");
	bool ok;

	buf[0] = '\0';
	if (f == NULL)
		return false;
	ok = fgets(buf, (int)size, f) != NULL;
	fclose(f);
	buf[strcspn(buf, "\n")] = '\0';
	return ok;
}

uint64_t vb_host_meminfo(const char *key)
{
	FILE *f = fopen("/proc/meminfo", "re");
	size_t len = strlen(key);
	char line[160];
	uint64_t value = 0;

	if (f == NULL)
		return 0;
	while (fgets(line, sizeof(line), f) != NULL) {
		char *end;

		if (strncmp(line, key, len) != 0 || line[len] != ':')
			continue;
		value = strtoull(line + len + 1, &end, 10);
		if (strstr(end, "kB") != NULL)
			value *= 1024;
		break;
	}
	fclose(f);
	return value;
}

static bool has_word(const char *list, const char *word)
{
	size_t len = strlen(word);

	for (const char *p = strstr(list, word); p != NULL; p = strstr(p + 1, word)) {
		if ((p == list || p[-1] == ' ') && (p[len] == ' ' || p[len] == '\n' || !p[len]))
			return true;
	}
	return false;
}

static void probe_cpuinfo(struct vb_host *h)
{
	FILE *f = fopen("/proc/cpuinfo", "re");
	char *line = NULL;
	size_t size = 0;

	if (f == NULL)
		return;
	while (getline(&line, &size, f) > 0) {
		char *value = strchr(line, ':');

		if (value == NULL) {
			if (h->cpu[0] != '\0')
				break; /* one processor is enough */
			continue;
		}
		value += value[1] == ' ' ? 2 : 1;
		if (strncmp(line, "model name", 10) == 0)
			snprintf(h->cpu, sizeof(h->cpu), "%.*s", (int)strcspn(value, "\n"), value);
		if (strncmp(line, "flags", 5) == 0) {
			h->cmpxchg16b = has_word(value, "cx16");
			h->constant_tsc = has_word(value, "constant_tsc");
		}
	}
	free(line);
	fclose(f);
}

void vb_host_probe(struct vb_host *h)
{
	struct utsname u;
	long cores = sysconf(_SC_NPROCESSORS_ONLN);

	memset(h, 0, sizeof(*h));
	probe_cpuinfo(h);
	if (h->cpu[0] == '\0')
		snprintf(h->cpu, sizeof(h->cpu), "unknown");
	if (uname(&u) == 0)
		snprintf(h->kernel, sizeof(h->kernel), "%.20s %.72s", u.sysname, u.release);
	vb_host_read_line("/sys/devices/system/clocksource/clocksource0/current_clocksource",
			  h->clocksource, sizeof(h->clocksource));
	h->cores = cores > 0 ? (unsigned)cores : 1;
	h->mem_total = vb_host_meminfo("MemTotal");
	h->mem_available = vb_host_meminfo("MemAvailable");
	if (getloadavg(&h->load1, 1) != 1)
		h->load1 = 0;
}
