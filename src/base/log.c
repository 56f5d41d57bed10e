/* SPDX-License-Identifier: Apache-2.0 */
/* See log.h.  A line is formatted whole and written with one write(2), so that the lines of several
 * threads and processes do not mix. */
#include "base/log.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "base/opt.h"

#define LINE_MAX_BYTES 1024

static const char *const level_names[] = {"error", "warn", "info", "debug", "trace"};

/* Every VB_LOG_ROOM there is; tests/cli/output.sh looks that none is missing. */
static const char *const rooms[] = {
	"bench",       "cc",     "check",     "cluster",
	"dist",        "doctor", "dslr",      "dslr-as-published",
	"dslr-update", "dump",   "fabric",    "hook",
	"json",        "lab",    "load",      "lock",
	"micro",       "net",    "options",   "report",
	"reproduce",   "rpc",    "shiftlock", "shiftlock-as-published",
	"shm",         "sim",    "store",     "task",
	"top",         "trace",  "txn",       "ucx",
	"verbs",
};

struct filter {
	const char *room;
	enum vb_log_level level;
};

static struct filter filters[VB_ARRAY_SIZE(rooms)];
static unsigned n_filters;
static enum vb_log_level default_level = VB_LOG_WARN;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static _Thread_local char *capture_buf;
static _Thread_local size_t capture_size;
static _Thread_local unsigned muted;

static int parse_level(const char *text, enum vb_log_level *out)
{
	for (unsigned i = 0; i < VB_ARRAY_SIZE(level_names); i++) {
		if (!strcmp(text, level_names[i])) {
			*out = (enum vb_log_level)i;
			return 0;
		}
	}
	return -1;
}

static const char *find_room(const char *name)
{
	for (unsigned i = 0; i < VB_ARRAY_SIZE(rooms); i++)
		if (!strcmp(rooms[i], name))
			return rooms[i];
	return NULL;
}

/* The last word for a room counts. */
static void set_level(const char *room, enum vb_log_level level)
{
	unsigned i = 0;

	while (i < n_filters && filters[i].room != room)
		i++;
	n_filters += i == n_filters;
	filters[i] = (struct filter){room, level};
}

/* False: there is no such part. */
static bool parse_word(char *word)
{
	char *colon = strchr(word, ':'), hint[VB_HINT_BYTES];
	const char *room = NULL;
	enum vb_log_level level;

	if (colon) {
		*colon = '\0';
		room = find_room(word);
	}
	if (parse_level(colon ? colon + 1 : word, &level))
		fprintf(stderr,
			"verbena: VERBENA_LOG: '%s' is no level; error, warn, info, debug and "
			"trace are\n",
			colon ? colon + 1 : word);
	else if (!colon)
		default_level = level;
	else if (room != NULL)
		set_level(room, level);
	if (!colon || room != NULL)
		return true;
	fprintf(stderr, "verbena: VERBENA_LOG: there is no part '%s'%s\n", word,
		vb_did_you_mean(hint, word, rooms, VB_ARRAY_SIZE(rooms)));
	return false;
}

static void read_environment(void)
{
	const char *env = getenv("VERBENA_LOG");
	char *copy = env ? strdup(env) : NULL, *save = NULL;
	bool known = true;

	if (!copy)
		return;
	for (char *w = strtok_r(copy, ",", &save); w; w = strtok_r(NULL, ",", &save))
		known &= parse_word(w);
	free(copy);
	if (known)
		return;
	fprintf(stderr, "verbena: VERBENA_LOG: the parts are");
	for (unsigned i = 0; i < VB_ARRAY_SIZE(rooms); i++)
		fprintf(stderr, "%s %s", i > 0 ? "," : "", rooms[i]);
	fprintf(stderr, "\n");
}

int vb_log_on(const char *room, enum vb_log_level level)
{
	int saved = errno;

	pthread_once(&once, read_environment);
	errno = saved;
	for (unsigned i = 0; i < n_filters; i++)
		if (!strcmp(filters[i].room, room))
			return level <= filters[i].level;
	return level <= default_level;
}

/* Messages quote files and peers: what would be a command to a terminal is shown as '?'.  That is every
 * control character but the tab and the line's end, also those of Latin-1 and of UTF-8 (C2 80 to C2 9F),
 * and every byte of 80 and more that belongs to no UTF-8 character. */
static void clean(char *text, size_t n)
{
	for (size_t i = 0; i < n;) {
		const uint8_t c = (uint8_t)text[i];
		const size_t more = c >= 0xf0 ? 3 : c >= 0xe0 ? 2 : 1;
		bool whole = c >= 0xc2 && c <= 0xf4 && i + more < n;

		if (c < 0x80) {
			if ((c < 0x20 && c != '\t' && c != '\n') || c == 0x7f)
				text[i] = '?';
			i++;
			continue;
		}
		for (size_t k = 1; whole && k <= more; k++)
			whole = ((uint8_t)text[i + k] & 0xc0) == 0x80;
		if (c == 0xc2 && whole && (uint8_t)text[i + 1] < 0xa0)
			whole = false;
		if (!whole)
			text[i] = '?';
		i += whole ? more + 1 : 1;
	}
}

void vb_log_write(const char *room, enum vb_log_level level, const char *fmt, ...)
{
	char line[LINE_MAX_BYTES];
	va_list args;
	int n, m, saved = errno; /* vb_fail(-errno, ...) reads it after us */

	if (muted > 0)
		return;
	va_start(args, fmt);
	if (capture_buf) {
		vsnprintf(capture_buf, capture_size, fmt, args);
		clean(capture_buf, strlen(capture_buf));
		va_end(args);
		errno = saved;
		return;
	}
	n = snprintf(line, sizeof(line), "verbena: %s: %s: ", room, level_names[level]);
	m = vsnprintf(line + n, sizeof(line) - (size_t)n - 1, fmt, args);
	va_end(args);
	n = m < 0 ? n : n + m;
	if (n > (int)sizeof(line) - 2)
		n = sizeof(line) - 2;
	clean(line, (size_t)n);
	line[n++] = '\n';
	(void)!write(STDERR_FILENO, line, (size_t)n); /* of its failure nobody is left to be told */
	errno = saved;
}

void vb_log_capture_begin(char *buf, size_t size)
{
	vb_assert(size > 0);
	buf[0] = '\0';
	capture_size = size;
	capture_buf = buf;
}

void vb_log_capture_end(void)
{
	capture_buf = NULL;
}

void vb_log_mute(void)
{
	muted++;
}

void vb_log_unmute(void)
{
	vb_assert(muted > 0);
	muted--;
}

bool vb_null_said(const char *room, const char *call, const char *pointers)
{
	if (vb_log_on(room, VB_LOG_ERROR))
		vb_log_write(room, VB_LOG_ERROR, "%s: a pointer that it needs (%s) is NULL", call,
			     pointers);
	return true;
}
