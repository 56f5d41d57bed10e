/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Log lines on stderr, "verbena: shm: error: ...", or to the program's function (vb_log_set).
 *
 * VERBENA_LOG, and after it vb_log_levels, sets the level for every room or for single ones: "info",
 * "warn,lock:debug,shm:trace".  The default is "warn".  What is no room is said, once, with those that
 * are (log.c lists them).  A room names itself by defining VB_LOG_ROOM
 * before including this file.  The first function that decides an error logs it; callers pass the
 * value on in silence.
 */
#ifndef VB_BASE_LOG_H
#define VB_BASE_LOG_H

#include <stdbool.h>

#include <verbena/verbena.h>

#include "base/compiler.h"

VB_COLD int vb_log_on(const char *room, enum vb_log_level level);
VB_COLD void vb_log_write(const char *room, enum vb_log_level level, const char *fmt, ...)
	VB_PRINTF(3, 4);

/* Until the matching end, lines of this thread go to buf (the last one wins) instead of stderr; the
 * command line uses it to put the cause into its one line.  Tests use it to look at the text. */
void vb_log_capture_begin(char *buf, size_t size);
void vb_log_capture_end(void);

/* Until the matching end, lines of this thread are dropped; inside a capture, too, which then goes on.
 * For a call whose refusal is what is wanted, and that does not suspend. */
void vb_log_mute(void);
void vb_log_unmute(void);

#define vb_log_at(level, ...)                                                                      \
	do {                                                                                       \
		if (vb_log_on(VB_LOG_ROOM, level))                                                 \
			vb_log_write(VB_LOG_ROOM, level, __VA_ARGS__);                             \
	} while (0)

#define vb_error(...) vb_log_at(VB_LOG_ERROR, __VA_ARGS__)
#define vb_warn(...)  vb_log_at(VB_LOG_WARN, __VA_ARGS__)
#define vb_info(...)  vb_log_at(VB_LOG_INFO, __VA_ARGS__)
#define vb_debug(...) vb_log_at(VB_LOG_DEBUG, __VA_ARGS__)

/* Logs the error and is the value: return vb_fail(-EINVAL, "theta %g ...", theta); */
#define vb_fail(err, ...)                                                                          \
	({                                                                                         \
		vb_error(__VA_ARGS__);                                                             \
		(err);                                                                             \
	})

/*
 * Whether one of up to four pointers that a public call needs is NULL; the log says so:
 * if (vb_any_null(client, out)) return -EINVAL;
 */
#define VB_NULL_1(a)                         ((a) == NULL)
#define VB_NULL_2(a, b)                      (VB_NULL_1(a) || VB_NULL_1(b))
#define VB_NULL_3(a, b, c)                   (VB_NULL_2(a, b) || VB_NULL_1(c))
#define VB_NULL_4(a, b, c, d)                (VB_NULL_3(a, b, c) || VB_NULL_1(d))
#define VB_NULL_OF(_1, _2, _3, _4, any, ...) any
#define vb_any_null(...)                                                                           \
	(vb_unlikely(VB_NULL_OF(__VA_ARGS__, VB_NULL_4, VB_NULL_3, VB_NULL_2, VB_NULL_1,           \
				0)(__VA_ARGS__)) &&                                                \
	 vb_null_said(VB_LOG_ROOM, __func__, #__VA_ARGS__))

/* True. */
VB_COLD bool vb_null_said(const char *room, const char *call, const char *pointers);

#endif
