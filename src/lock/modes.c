/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lock modes: which exclude each other, and which permit what another does.
 *
 * The intention modes and their matrix are those of Gray, Lorie, Putzolu and Traiger 1976 (Barthels
 * et al., table 1).  An update lock is held beside shared ones and beside no other update lock, so
 * that of several clients that may write later only one waits for the readers to leave (DSLR,
 * section 5.2).
 */
#include "lock/lock.h"

#define S   (1u << VB_SHARED)
#define X   (1u << VB_EXCLUSIVE)
#define U   (1u << VB_UPDATE)
#define IS  (1u << VB_INTENT_SHARED)
#define IX  (1u << VB_INTENT_EXCLUSIVE)
#define SIX (1u << VB_SHARED_INTENT_EXCLUSIVE)

static const struct {
	const char *name;
	/* Bits of the modes that may be held at the same time, and of those that permit no more. */
	uint8_t beside;
	uint8_t covers;
} modes[VB_MODES] = {
	[VB_SHARED] = {"shared", S | U | IS, S | IS},
	[VB_EXCLUSIVE] = {"exclusive", 0, S | X | U | IS | IX | SIX},
	[VB_UPDATE] = {"update", S | IS, S | U | IS},
	[VB_INTENT_SHARED] = {"intent-shared", S | U | IS | IX | SIX, IS},
	[VB_INTENT_EXCLUSIVE] = {"intent-exclusive", IS | IX, IS | IX},
	[VB_SHARED_INTENT_EXCLUSIVE] = {"shared-intent-exclusive", IS, S | IS | IX | SIX},
};

const char *vb_lock_mode_name(enum vb_mode mode)
{
	return (unsigned)mode < VB_MODES ? modes[mode].name : "?";
}

bool vb_modes_exclude(enum vb_mode a, enum vb_mode b)
{
	return (modes[a].beside & 1u << b) == 0;
}

bool vb_mode_covers(enum vb_mode a, enum vb_mode b)
{
	return (modes[a].covers & 1u << b) != 0;
}

enum vb_mode vb_mode_served(uint32_t caps, enum vb_mode mode)
{
	if ((mode == VB_SHARED && !(caps & VB_LOCK_SHARED)) ||
	    (mode == VB_UPDATE && !(caps & VB_LOCK_UPDATE)))
		return VB_EXCLUSIVE;
	return mode;
}

enum vb_mode vb_mode_join(enum vb_mode a, enum vb_mode b)
{
	unsigned both = modes[a].covers | modes[b].covers, best = VB_EXCLUSIVE;

	for (unsigned m = 0; m < VB_MODES; m++)
		if ((modes[m].covers & both) == both &&
		    __builtin_popcount(modes[m].covers) < __builtin_popcount(modes[best].covers))
			best = m;
	return (enum vb_mode)best;
}
