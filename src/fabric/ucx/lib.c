/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loading UCX.
 *
 * UCX takes liberties with the process it is loaded into: it patches mmap, munmap, madvise and
 * their kin to follow memory it has registered (we register none, and the sanitizers crash over
 * it), it catches SIGSEGV to print a backtrace, and it prints its errors on stdout, where the
 * tool's results go.  What matters of its errors comes back as a status and is said by us.  All
 * three can only be turned off by environment variables that it reads while it is loaded.
 */
#define VB_LOG_ROOM "ucx"
#include "fabric/ucx/lib.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

static const struct {
	const char *name, *text;
} wishes[] = {
	{"UCX_MEM_EVENTS", "UCX_MEM_EVENTS=n"},
	{"UCX_HANDLE_ERRORS", "UCX_HANDLE_ERRORS=none"},
	{"UCX_LOG_LEVEL", "UCX_LOG_LEVEL=fatal"},
};

/*
 * dlopen with more variables in the environment; those that the user has set stay.  Not by setenv,
 * which may free what another thread's getenv is reading: for the time of the call the process has
 * another array, whose strings are the old ones and ours.
 */
static void *load_quietly(const char *name)
{
	static char **with; /* stays: a thread may be reading it for longer */
	char **before = environ;
	size_t n = 0;
	void *lib;

	while (before != NULL && before[n] != NULL)
		n++;
	with = calloc(n + VB_ARRAY_SIZE(wishes) + 1, sizeof(*with));
	if (with == NULL)
		return dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	if (n > 0)
		memcpy(with, before, n * sizeof(*with));
	for (size_t i = 0; i < VB_ARRAY_SIZE(wishes); i++) {
		if (getenv(wishes[i].name) == NULL)
			with[n++] = (char *)wishes[i].text;
	}
	__atomic_store_n(&environ, with, __ATOMIC_SEQ_CST);
	/* libucp alone: the symbols of libucs are found through it as well. */
	lib = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	__atomic_store_n(&environ, before, __ATOMIC_SEQ_CST);
	return lib;
}

static void lib_load(void)
{
	void *ucp = load_quietly("libucp.so.0");

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
