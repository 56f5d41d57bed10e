/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loading UCX.
 *
 * UCX takes liberties with the process it is loaded into: it catches SIGSEGV and its kin to print a
 * backtrace, and it prints its own errors on stdout, where the tool's results go.  Both are turned
 * off, unless the user has set UCX_HANDLE_ERRORS or UCX_LOG_LEVEL; what matters of its errors comes
 * back as a status and is said by us.
 */
#define VB_LOG_ROOM "ucx"
#include "fabric/ucx_lib.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

#if !VB_HAVE_UCP

const char *ucx_absent(void)
{
	return "built without UCX headers (Debian: libucx-dev)";
}

#else

static struct ucx_lib the_lib;
static char why_not[256];
static pthread_once_t lib_once = PTHREAD_ONCE_INIT;

static const struct {
	const char *symbol;
	size_t at;
} lib_calls[] = {
#define UCX_ENTRY(ret, name, args) {#name, offsetof(struct ucx_lib, name)},
	UCX_CALLS(UCX_ENTRY)
#undef UCX_ENTRY
};

static void be_quiet(void *ucs)
{
	void (*no_signals)(void);
	ucs_status_t (*set)(const char *, const char *);
	void *entry = dlsym(ucs, "ucs_debug_disable_signals");

	memcpy(&no_signals, &entry, sizeof(entry));
	if (entry != NULL && getenv("UCX_HANDLE_ERRORS") == NULL)
		no_signals();
	entry = dlsym(ucs, "ucs_global_opts_set_value");
	memcpy(&set, &entry, sizeof(entry));
	if (entry != NULL && getenv("UCX_LOG_LEVEL") == NULL && set("LOG_LEVEL", "fatal") != UCS_OK)
		vb_debug("UCX's own log cannot be turned off");
}

static void lib_load(void)
{
	/* libucp first: the symbols of libucs are found through it as well. */
	void *ucp = dlopen("libucp.so.0", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);

	if (ucp == NULL) {
		snprintf(why_not, sizeof(why_not), "libucp cannot be loaded: %s (Debian: libucx0)",
			 dlerror());
		return;
	}
	for (size_t i = 0; i < VB_ARRAY_SIZE(lib_calls); i++) {
		void *entry = dlsym(ucp, lib_calls[i].symbol);

		if (entry == NULL) {
			snprintf(why_not, sizeof(why_not),
				 "libucp lacks %s: UCX 1.11 or newer is needed",
				 lib_calls[i].symbol);
			return;
		}
		memcpy((char *)&the_lib + lib_calls[i].at, &entry, sizeof(entry));
	}
	be_quiet(ucp);
}

const char *ucx_absent(void)
{
	pthread_once(&lib_once, lib_load);
	return why_not[0] != '\0' ? why_not : NULL;
}

const struct ucx_lib *ucx_lib(void)
{
	return ucx_absent() == NULL ? &the_lib : NULL;
}

#endif
