/* SPDX-License-Identifier: Apache-2.0 */
/* The word of dslr-update (the figure is in update.c), and its calls for the planted bug. */
#ifndef VB_LOCK_DSLR_UPDATE_H
#define VB_LOCK_DSLR_UPDATE_H

#include "lock/dslr/dslr.h"

#define UPD_BITS      14
#define UPD_FIELD     ((1ull << UPD_BITS) - 1)
#define UPD_ONE_MAX_S 1ull
#define UPD_ONE_MAX_W (1ull << UPD_BITS)
#define UPD_ONE_N_S   (1ull << 2 * UPD_BITS)
#define UPD_ONE_N_W   (1ull << 3 * UPD_BITS)
#define UPD_ERA_SHIFT (4 * UPD_BITS)
#define UPD_ERA_MASK  (0xffull << UPD_ERA_SHIFT)
#define UPD_S_MASK    (UPD_FIELD * UPD_ONE_N_S)
#define UPD_W_MASK    (UPD_ERA_MASK | UPD_FIELD * UPD_ONE_N_W)
#define UPD_N_MASK    (UPD_W_MASK | UPD_S_MASK)
_Static_assert(UPD_ERA_SHIFT + 8 == 64, "four counters and an era of 8 bits fill the word");

static inline uint32_t upd_max_s(uint64_t w)
{
	return w & UPD_FIELD;
}

static inline uint32_t upd_max_w(uint64_t w)
{
	return w / UPD_ONE_MAX_W & UPD_FIELD;
}

static inline uint32_t upd_n_s(uint64_t w)
{
	return w / UPD_ONE_N_S & UPD_FIELD;
}

static inline uint32_t upd_n_w(uint64_t w)
{
	return w / UPD_ONE_N_W & UPD_FIELD;
}

static inline uint32_t upd_era(uint64_t w)
{
	return (uint32_t)(w >> UPD_ERA_SHIFT);
}

/* The era counts modulo 256. */
static inline uint64_t upd_word(uint32_t era, uint32_t n_w, uint32_t n_s, uint32_t max_w,
				uint32_t max_s)
{
	return (uint64_t)era << UPD_ERA_SHIFT | n_w * UPD_ONE_N_W | n_s * UPD_ONE_N_S |
	       max_w * UPD_ONE_MAX_W | max_s;
}

int dslr_update_acquire(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns);
int dslr_update_resume(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns);
int dslr_update_try_acquire(struct vb_lock_client *me, struct vb_claim *c);
int dslr_update_convert(struct vb_lock_client *me, struct vb_claim *c, enum vb_mode mode,
			uint64_t until_ns);
int dslr_update_release(struct vb_lock_client *me, struct vb_claim *c);
extern const struct vb_opt dslr_update_option_table[];

/* dslr-update without its name and `convert`, which the planted bug has of its own. */
#define DSLR_UPDATE_LOCK                                                                           \
	.caps = VB_LOCK_SHARED | VB_LOCK_EXCLUSIVE | VB_LOCK_UPDATE | VB_LOCK_FIFO |               \
		VB_LOCK_SURVIVES,                                                                  \
	.wishes = VB_CAP_MASKED64,                                                                 \
	.portable =                                                                                \
		"releases compare the whole word and try again when a ticket was taken meanwhile", \
	.entry_bytes = 8, .recovery_leases = 5, .options = dslr_update_option_table,               \
	.options_size = sizeof(struct dslr_options),                                               \
	.verbs_uncontended = "1 FAA; release 1 masked CAS (exclusive, update) or 1 FAA (shared)",  \
	.verbs_contended = "+ 1 READ per poll, omega times the tickets ahead apart",               \
	.bypass_bound = dslr_bypass_bound, .leases_max = dslr_leases_max, .shape = dslr_shape,     \
	.open = dslr_open, .acquire = dslr_update_acquire, .resume = dslr_update_resume,           \
	.try_acquire = dslr_update_try_acquire, .release = dslr_update_release,                    \
	.release_now = dslr_update_release

#endif
