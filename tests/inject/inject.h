/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls of the C library and of the kernel that fail when a test wants it.
 *
 * A program that is linked with the list of tests/inject/meson.build has each such call of ours go
 * through inject.c (the linker's --wrap); what the C library, UCX and jansson call themselves does
 * not.  While it is armed the calls are counted, in all threads and forked children together, and one
 * of them fails, or all from that one on, or some by chance.
 *
 * Programs that are not tests, like the copy of verbena(1) that is built here, are told by the
 * environment:
 *
 *	VERBENA_INJECT=once:17            the 17th call fails
 *	VERBENA_INJECT=from:17[:CLASSES]  it and all later ones of the classes, "mofwnp" (below)
 *	VERBENA_INJECT=seed:4711:20       one in 20 fails, by that seed
 *	VERBENA_INJECT=count              none does
 *	VERBENA_INJECT_TOLD=FILE          how many there were, how many failed, which and where, and
 *	                                  then where each was, a line each, goes there at the end
 */
#ifndef TEST_INJECT_H
#define TEST_INJECT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum inject_class {
	INJECT_MEMORY = 1 << 0,  /* m: malloc and what calls it */
	INJECT_OPEN = 1 << 1,    /* o: whatever makes a descriptor */
	INJECT_FILE = 1 << 2,    /* f: size, write, sync, name */
	INJECT_MAP = 1 << 3,     /* w: mmap, mprotect */
	INJECT_NET = 1 << 4,     /* n: bind, listen, connect */
	INJECT_PROCESS = 1 << 5, /* p: fork, threads */
	INJECT_ALL = (1 << 6) - 1,
};

enum inject_how { INJECT_NONE, INJECT_ONCE, INJECT_FROM, INJECT_CHANCE };

struct inject_plan {
	enum inject_how how;
	uint32_t classes; /* of which calls fail; 0: all; from: that of the first */
	const char *only; /* NULL, or: only calls of this name, and only they are counted */
	uint64_t at;      /* once, from: the number of the call, from 1 */
	uint64_t seed;
	uint32_t one_in;
};

/* From here on, and until here. */
void inject_arm(const struct inject_plan *plan);
void inject_disarm(void);
/* Of this process only: a forked child of the test that stands for somebody else. */
void inject_leave(void);

uint64_t inject_calls(void);  /* that were counted since inject_arm */
uint64_t inject_failed(void); /* of them */
/* Where the n-th was called, from 1; 0: it was none of the first INJECT_TRAIL. */
#define INJECT_TRAIL 65536
uintptr_t inject_trail(uint64_t n);
/* The first that failed, and where it was called: an offset into the program, for addr2line. */
const char *inject_what(void);
uintptr_t inject_where(void);

/*
 * What is held, of what was asked for since the process began: pieces of memory and mappings, by the
 * place that asked.  More than `before` at some place is said, and counts.
 */
#define INJECT_PLACES 1024
struct inject_held {
	unsigned n;
	struct {
		uintptr_t where;
		unsigned held;
	} place[INJECT_PLACES];
};
void inject_look(struct inject_held *out);
unsigned inject_more(const struct inject_held *now, const struct inject_held *before, FILE *say);

#endif
