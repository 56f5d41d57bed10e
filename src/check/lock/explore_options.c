/* SPDX-License-Identifier: Apache-2.0 */
/* The options of a protocol, and those that a seed draws for it. */
#define VB_LOG_ROOM "check"
#include <stdarg.h>
#include <string.h>

#include "check/lock/explore_inner.h"

const struct vb_opt *explore_option(const struct vb_lock_ops *ops, const char *name)
{
	for (const struct vb_opt *o = ops->options; o != NULL && o->kind != VB_OPT_KIND_END; o++)
		if (strcmp(o->name, name) == 0)
			return o;
	return NULL;
}

void explore_add_option(struct vb_explore_draw *d, const char *fmt, ...)
{
	size_t used = strlen(d->options);
	va_list ap;

	if (used > 0)
		d->options[used++] = ',';
	va_start(ap, fmt);
	vsnprintf(d->options + used, sizeof(d->options) - used, fmt, ap);
	va_end(ap);
}
