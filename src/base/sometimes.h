/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rare branches have names, so that whoever explores can say whether a run ever took them, and can
 * have some of them taken on purpose:
 *
 *	VB_SOMETIMES(200, "dslr dslr-update: a reset lost its race");
 *	if (VB_CHANCE(200, "traditional traditional-ro: news come twice"))
 *
 * Only a thread that explores (check/) counts, and only there is a chance ever true; anywhere else
 * each is a branch that is not taken.  A chance may change nothing that its protocol promises: what
 * it does must be what might have happened anyway.
 *
 * Before the colon stand the groups of a site.  A campaign has groups too (its protocol, and what
 * that shares with others), and must reach each site of them within as many seeds as stand before
 * the name.  Sites are in .c files: each is one.
 */
#ifndef VB_BASE_SOMETIMES_H
#define VB_BASE_SOMETIMES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"
#include "base/rng.h"

struct vb_site {
	const char *name;
	unsigned seeds;
	bool is_chance;
	/* Of the seed that is explored, or that was last: how often it was reached. */
	uint64_t hits;
	/* Of a chance, in this seed; 0: never. */
	double chance;
	struct vb_rng rng;
};

/* This thread explores. */
extern __thread bool vb_exploring __attribute__((tls_model("initial-exec")));
#if defined(__aarch64__)
#define vb_exploring VB_TLS_AT(vb_exploring)
#endif

/* Until vb_sites_end this thread counts, from 0, and takes the chances that the seed has drawn. */
void vb_sites_begin(uint64_t seed);
void vb_sites_end(void);

/* Every site of the program, in no order. */
struct vb_site **vb_sites_all(unsigned *n);
/* Is it in one of these groups?  Words with blanks between them. */
bool vb_site_is_of(const struct vb_site *s, const char *groups);
/* Its name without the groups. */
const char *vb_site_event(const struct vb_site *s);

bool vb_site_takes_chance(struct vb_site *s);

/* The linker puts the pointers to all sites beside each other. */
#define VB_SITE(within, text, chances)                                                             \
	({                                                                                         \
		static struct vb_site vb_site_here = {                                             \
			.name = (text), .seeds = (within), .is_chance = (chances)};                \
		static struct vb_site *vb_site_entry __attribute__((section("vb_sites"), used)) =  \
			&vb_site_here;                                                             \
		&vb_site_here;                                                                     \
	})

#define VB_SOMETIMES(seeds, name)                                                                  \
	do {                                                                                       \
		if (vb_unlikely(vb_exploring))                                                     \
			VB_SITE(seeds, name, false)->hits++;                                       \
	} while (0)

/* Where the event has no branch of its own. */
#define VB_SOMETIMES_IF(cond, seeds, name)                                                         \
	do {                                                                                       \
		if (vb_unlikely(vb_exploring) && (cond))                                           \
			VB_SITE(seeds, name, false)->hits++;                                       \
	} while (0)

#define VB_CHANCE(seeds, name)                                                                     \
	(vb_unlikely(vb_exploring) && vb_site_takes_chance(VB_SITE(seeds, name, true)))

#endif
