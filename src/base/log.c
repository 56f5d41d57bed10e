/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See log.h, and verbena.h for the program's function.  A line is formatted whole and written with one
 * write(2), so that the lines of several threads and processes do not mix.
 */
#define VB_LOG_ROOM "options"
#include "base/log.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/opt.h"

#define LINE_MAX_BYTES 1024

static const char *const level_names[] = {"off", "error", "warn", "info", "debug", "trace"};

/* Every VB_LOG_ROOM there is; tests/cli/output.sh looks that none is missing. */
static const char *const rooms[] = {
	"base",
	"bench",
	"cc",
	"check",
	"cluster",
	"dist",
	"doctor",
	"dslr",
	"dslr-as-published",
	"dslr-update",
	"dump",
	"fabric",
	"hook",
	"json",
	"lab",
	"load",
	"lock",
	"micro",
	"net",
	"options",
	"own",
	"report",
	"reproduce",
	"rpc",
	"seal",
	"serve",
	"shiftlock",
	"shiftlock-as-published",
	"shm",
	"sim",
	"store",
	"task",
	"tcp",
	"top",
	"trace",
	"txn",
	"ucx",
	"verbs",
};
#define ROOMS VB_ARRAY_SIZE(rooms)
/* No word of its own: the level for all counts. */
#define UNSET -1

/* What is let through. */
struct levels {
	int all;
	int of[ROOMS];
};

/* The one that counts.  Read without a lock: who changes it under way makes a message of another
 * thread come or stay away, and no more. */
static struct levels now = {.all = VB_LOG_WARN, .of = {[0 ... ROOMS - 1] = UNSET}};
static bool now_by_room;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/*
 * Where lines go: the program's function, or NULL for stderr.  Whoever calls it holds the lock for
 * reading, so that who replaces it knows when the old one has returned for the last time.  Who comes
 * to read goes behind who waits to write: threads that always have something to say would keep him
 * out for ever.  A child may be forked at any moment: a new function is put together in the place that
 * is not in use, and then `now` goes from one whole pair to another.
 */
static const pthread_rwlock_t sink_unlocked = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
struct to {
	vb_log_fn fn;
	void *user;
};
static struct {
	pthread_rwlock_t lock;
	struct to of[2];
	const struct to *now;
} sink = {.lock = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP};
/* This thread is in the program's function. */
static _Thread_local bool in_sink;

static _Thread_local char *capture_buf;
static _Thread_local size_t capture_size;
static _Thread_local unsigned muted;

/* ---- levels ---- */

/* Who is told what is wrong with a list: who set VERBENA_LOG reads stderr, who called
 * vb_log_levels the log. */
static VB_PRINTF(2, 3) void complain(bool environment, const char *fmt, ...)
{
	char text[LINE_MAX_BYTES];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	if (environment)
		fprintf(stderr, "verbena: VERBENA_LOG: %s\n", text);
	else
		vb_log_at(VB_LOG_ERROR, "vb_log_levels: %s", text);
}

static int find(const char *const names[], size_t n, const char *name)
{
	for (size_t i = 0; i < n; i++)
		if (!strcmp(names[i], name))
			return (int)i;
	return -1;
}

/* The last word for a room counts.  -ENOENT: there is no such room; -EINVAL: no such level. */
static int parse_word(char *word, bool environment, struct levels *to)
{
	char *colon = strchr(word, ':'), hint[VB_HINT_BYTES];
	int room = -1, level;

	if (colon)
		*colon = '\0';
	level = find(level_names, VB_ARRAY_SIZE(level_names), colon ? colon + 1 : word);
	if (level < 0)
		complain(environment,
			 "'%s' is no level; off, error, warn, info, debug and trace are",
			 colon ? colon + 1 : word);
	if (colon) {
		room = find(rooms, ROOMS, word);
		if (room < 0) {
			complain(environment, "there is no part '%s'%s", word,
				 vb_did_you_mean(hint, word, rooms, ROOMS));
			return -ENOENT;
		}
	}
	if (level < 0)
		return -EINVAL;
	*(room < 0 ? &to->all : &to->of[room]) = level;
	return 0;
}

/* All words that are right count; the first error is returned. */
static int parse_levels(char *list, bool environment, struct levels *to)
{
	char *save = NULL, names[LINE_MAX_BYTES];
	bool unknown = false;
	size_t n = 0;
	int err = 0;

	*to = (struct levels){.all = VB_LOG_WARN, .of = {[0 ... ROOMS - 1] = UNSET}};
	for (char *w = strtok_r(list, ",", &save); w; w = strtok_r(NULL, ",", &save)) {
		int bad = parse_word(w, environment, to);

		unknown |= bad == -ENOENT;
		err = err != 0 ? err : bad;
	}
	if (!unknown)
		return err;
	for (size_t i = 0; i < ROOMS; i++)
		n += (size_t)snprintf(names + n, sizeof(names) - n, "%s %s", i > 0 ? "," : "",
				      rooms[i]);
	complain(environment, "the parts are%s", names);
	return err;
}

static void use_levels(const struct levels *l)
{
	bool by_room = false;

	__atomic_store_n(&now.all, l->all, __ATOMIC_RELAXED);
	for (size_t i = 0; i < ROOMS; i++) {
		__atomic_store_n(&now.of[i], l->of[i], __ATOMIC_RELAXED);
		by_room |= l->of[i] != UNSET;
	}
	__atomic_store_n(&now_by_room, by_room, __ATOMIC_RELAXED);
}

static void read_environment(void)
{
	const char *env = getenv("VERBENA_LOG");
	char *copy = env ? strdup(env) : NULL;
	struct levels l;

	if (!copy)
		return;
	(void)parse_levels(copy, true, &l); /* what is right of it counts */
	use_levels(&l);
	free(copy);
}

int vb_log_levels(const char *levels)
{
	struct levels l;
	char *copy;
	int err;

	if (vb_any_null(levels))
		return -EINVAL;
	pthread_once(&once, read_environment);
	copy = strdup(levels);
	if (copy == NULL)
		return vb_fail(-ENOMEM, "no memory for a copy of '%.64s'", levels);
	err = parse_levels(copy, false, &l);
	free(copy);
	if (err)
		return -EINVAL;
	use_levels(&l);
	return 0;
}

int vb_log_on(const char *room, enum vb_log_level level)
{
	int saved = errno;

	pthread_once(&once, read_environment);
	errno = saved;
	if (__atomic_load_n(&now_by_room, __ATOMIC_RELAXED)) {
		for (size_t i = 0; i < ROOMS; i++) {
			int own = __atomic_load_n(&now.of[i], __ATOMIC_RELAXED);

			if (own != UNSET && !strcmp(rooms[i], room))
				return (int)level <= own;
		}
	}
	return (int)level <= __atomic_load_n(&now.all, __ATOMIC_RELAXED);
}

/* ---- where lines go ---- */

/* Who held the lock in the parent is not there in the child. */
static void forked(void)
{
	sink.lock = sink_unlocked;
}

static void hear_of_forks(void)
{
	(void)pthread_atfork(NULL, NULL, forked);
}

int vb_log_set(vb_log_fn fn, void *user)
{
	static pthread_once_t listening = PTHREAD_ONCE_INIT;
	struct to *next;

	if (in_sink)
		return vb_fail(-EDEADLK, "vb_log_set from the log's own function");
	pthread_once(&listening, hear_of_forks);
	pthread_rwlock_wrlock(&sink.lock);
	next = sink.now == &sink.of[0] ? &sink.of[1] : &sink.of[0];
	*next = (struct to){.fn = fn, .user = user};
	__atomic_store_n(&sink.now, fn != NULL ? next : NULL, __ATOMIC_RELEASE);
	pthread_rwlock_unlock(&sink.lock);
	return 0;
}

void vb_log_send(void *user, const struct vb_log_message *message)
{
	struct vb_log_socket *to = user;
	struct iovec parts[3];
	struct msghdr whole = {.msg_iov = parts, .msg_iovlen = VB_ARRAY_SIZE(parts)};
	char level;
	ssize_t n;

	if (vb_any_null(to, message))
		return;
	level = (char)('0' + (int)message->level);
	parts[0] = (struct iovec){.iov_base = &level, .iov_len = sizeof(level)};
	parts[1] = (struct iovec){.iov_base = (void *)(uintptr_t)message->part,
				  .iov_len = strlen(message->part) + 1};
	parts[2] = (struct iovec){.iov_base = (void *)(uintptr_t)message->text,
				  .iov_len = strlen(message->text)};
	do
		n = sendmsg(to->fd, &whole, MSG_DONTWAIT | MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		__atomic_fetch_add(&to->lost, 1, __ATOMIC_RELAXED);
}

/* False: there is no function, or this is what it has caused itself. */
static bool to_sink(const char *room, enum vb_log_level level, const char *text)
{
	const struct vb_log_message message = {.level = level, .part = room, .text = text};
	const struct to *to;

	if (in_sink || __atomic_load_n(&sink.now, __ATOMIC_RELAXED) == NULL)
		return false;
	pthread_rwlock_rdlock(&sink.lock);
	to = sink.now;
	if (to != NULL) {
		in_sink = true;
		to->fn(to->user, &message);
		in_sink = false;
	}
	pthread_rwlock_unlock(&sink.lock);
	return to != NULL;
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
	int n, m, head, saved = errno; /* vb_fail(-errno, ...) reads it after us */

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
	n = head = snprintf(line, sizeof(line), "verbena: %s: %s: ", room, level_names[level]);
	m = vsnprintf(line + n, sizeof(line) - (size_t)n - 1, fmt, args);
	va_end(args);
	n = m < 0 ? n : n + m;
	if (n > (int)sizeof(line) - 2)
		n = sizeof(line) - 2;
	line[n] = '\0';
	clean(line, (size_t)n);
	if (to_sink(room, level, line + head)) {
		errno = saved;
		return;
	}
	line[n++] = '\n';
	(void)!write(STDERR_FILENO, line, (size_t)n); /* of its failure nobody is left to be told */
	errno = saved;
}

/* Its last words, whatever the levels. */
void vb_assert_failed(const char *cond, const char *file, int line)
{
	char text[512];

	snprintf(text, sizeof(text), "%s:%d: this must hold and does not: %s", file, line, cond);
	fprintf(stderr, "verbena: %s\n", text);
	(void)to_sink(VB_LOG_ROOM, VB_LOG_ERROR, text);
	abort();
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
