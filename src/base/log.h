/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Log lines on stderr: "verbena: shm: error: ...".
 *
 * VERBENA_LOG sets the level for every room or for single ones: "info",
 * "warn,lock:debug,shm:trace".  The default is "warn".  A room names itself by defining VB_LOG_ROOM
 * before including this file.  The first function that decides an error logs it; callers pass the
 * value on in silence.
 */
#ifndef VB_BASE_LOG_H
#define VB_BASE_LOG_H

#include "base/compiler.h"

enum vb_log_level { VB_LOG_ERROR, VB_LOG_WARN, VB_LOG_INFO, VB_LOG_DEBUG, VB_LOG_TRACE };

int vb_log_on(const char *room, enum vb_log_level level);
void vb_log_write(const char *room, enum vb_log_level level, const char *fmt, ...) VB_PRINTF(3, 4);

/* Until the matching end, lines of this thread go to buf (the last one wins) instead of stderr; the
 * command line uses it to put the cause into its one line.  Tests use it to look at the text. */
void vb_log_capture_begin(char *buf, size_t size);
void vb_log_capture_end(void);

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

#endif
