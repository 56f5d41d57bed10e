/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Verbs on shared memory: the caller's CPU executes them, at once.
 *
 * Order.  The interface wants a READ or atomic to see the WRITEs and atomics before it as the
 * target does: after them in one global order, so that of two clients that each write one word and
 * then read the other's, one sees the other.  Atomics are locked instructions and full barriers; so
 * the last piece of every WRITE is stored by an exchange (sequentially consistent), and READs are
 * sequentially consistent loads.  Nothing runs before an earlier READ or atomic either, so
 * VB_FENCE has nothing left to do.
 *
 * Pieces.  Up to the first 16-byte boundary and after the last one in 8-byte words and bytes, in
 * between in 16-byte pieces that are whole: with AVX an aligned 16-byte load or store is atomic
 * (Intel SDM 3A 9.1.1, AMD APM 2 7.3.2), elsewhere cmpxchg16b does it.
 *
 * The 16-byte instructions are invisible to the thread sanitizer, which is told what they order.
 */
#define VB_LOG_ROOM "shm"
#include <inttypes.h>
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include "base/log.h"
#include "fabric/shm_internal.h"

#ifdef VB_TSAN
void __tsan_acquire(void *addr);
void __tsan_release(void *addr);
#define told_acquire(p) (__tsan_acquire(p), __tsan_acquire((uint64_t *)(p) + 1))
#define told_release(p) (__tsan_release(p), __tsan_release((uint64_t *)(p) + 1))
#else
#define told_acquire(p) ((void)(p))
#define told_release(p) ((void)(p))
#endif

/* ---- 16 bytes at once ---- */

static inline struct vb_u128 swap_if16(struct vb_u128 *at, struct vb_u128 expect,
				       struct vb_u128 value)
{
	struct vb_u128 found = expect;

	told_release(at);
#if defined(__x86_64__)
	/* Not the builtin: the sanitizer's version of it takes a lock that other processes do not.
	 */
	__asm__ __volatile__("lock cmpxchg16b %0"
			     : "+m"(*at), "+a"(found.lo), "+d"(found.hi)
			     : "b"(value.lo), "c"(value.hi)
			     : "memory", "cc");
#else
	unsigned __int128 e = (unsigned __int128)expect.hi << 64 | expect.lo;
	unsigned __int128 v = (unsigned __int128)value.hi << 64 | value.lo;
	unsigned __int128 r = __sync_val_compare_and_swap((unsigned __int128 *)at, e, v);

	found = (struct vb_u128){.lo = (uint64_t)r, .hi = (uint64_t)(r >> 64)};
#endif
	told_acquire(at);
	return found;
}

#if defined(__x86_64__)
static bool whole16; /* aligned 16-byte moves are atomic */

__attribute__((constructor)) static void find_whole16(void)
{
	__builtin_cpu_init();
	whole16 = __builtin_cpu_supports("avx");
}
#endif

static inline struct vb_u128 load16(struct vb_u128 *at)
{
#if defined(__x86_64__)
	if (vb_likely(whole16)) {
		struct vb_u128 v;
		__m128i x;

		__asm__ __volatile__("movdqa %1, %0" : "=x"(x) : "m"(*at) : "memory");
		_mm_storeu_si128((__m128i *)&v, x);
		told_acquire(at);
		return v;
	}
#endif
	return swap_if16(at, (struct vb_u128){0}, (struct vb_u128){0});
}

static inline void store16(struct vb_u128 *at, struct vb_u128 v)
{
	struct vb_u128 expect, found = {0};

#if defined(__x86_64__)
	if (vb_likely(whole16)) {
		__m128i x = _mm_loadu_si128((const __m128i *)&v);

		told_release(at);
		__asm__ __volatile__("movdqa %1, %0" : "=m"(*at) : "x"(x) : "memory");
		return;
	}
#endif
	/* Loses to atomics only, each of which has then taken effect. */
	do {
		expect = found;
		found = swap_if16(at, expect, v);
	} while (!vb_u128_eq(found, expect));
}

/* ---- addresses ---- */

/* One test for the common case; the reason is looked for afterwards. */
static inline void *locate(const struct shm_ep *e, vb_addr a, uint64_t bytes, uint64_t align)
{
	uint64_t offset = vb_addr_offset(a);
	uint32_t node = vb_addr_node(a);

	if (vb_unlikely((node >= e->nodes) | (offset > e->node_bytes - bytes) |
			((offset & (align - 1)) != 0)))
		return NULL;
	return e->base[node] + offset;
}

static VB_NOINLINE int refuse(struct shm_ep *e, vb_addr a, uint64_t bytes)
{
	uint64_t offset = vb_addr_offset(a);
	uint32_t node = vb_addr_node(a);
	bool inside = node < e->nodes && bytes <= e->node_bytes && offset <= e->node_bytes - bytes;

	if ((e->refused & (e->refused + 1)) == 0) /* the 1st, 2nd, 4th, ... */
		vb_debug("%" PRIu64 " bytes at node %u offset %#" PRIx64 ": %s", bytes, node,
			 offset, inside ? "not aligned" : "outside the segment");
	e->refused++;
	return inside ? -EINVAL : -VB_EACCESS;
}

/* ---- READ and WRITE ---- */

static void copy_out(uint8_t *to, uint8_t *from, uint64_t n)
{
	while (n > 0) {
		uint64_t piece = 1;

		if (((uintptr_t)from & 15) == 0 && n >= 16) {
			struct vb_u128 v = load16((struct vb_u128 *)from);

			piece = 16;
			memcpy(to, &v, 16);
		} else if (((uintptr_t)from & 7) == 0 && n >= 8) {
			uint64_t v = __atomic_load_n((uint64_t *)from, __ATOMIC_SEQ_CST);

			piece = 8;
			memcpy(to, &v, 8);
		} else {
			*to = __atomic_load_n(from, __ATOMIC_SEQ_CST);
		}
		to += piece;
		from += piece;
		n -= piece;
	}
}

/* Stores of up to 8 bytes; `last` makes it a barrier, see the top of the file. */
static void store_small(uint8_t *to, const uint8_t *from, uint64_t piece, bool last)
{
	uint64_t v;

	if (piece == 8) {
		memcpy(&v, from, 8);
		if (last)
			(void)__atomic_exchange_n((uint64_t *)to, v, __ATOMIC_SEQ_CST);
		else
			__atomic_store_n((uint64_t *)to, v, __ATOMIC_RELEASE);
	} else if (last) {
		(void)__atomic_exchange_n(to, *from, __ATOMIC_SEQ_CST);
	} else {
		__atomic_store_n(to, *from, __ATOMIC_RELEASE);
	}
}

static void barrier(void)
{
	uint64_t word = 0;

	(void)__atomic_exchange_n((volatile uint64_t *)&word, 1, __ATOMIC_SEQ_CST);
}

static void copy_in(uint8_t *to, const uint8_t *from, uint64_t n)
{
	while (n > 0) {
		uint64_t piece = 1;

		if (((uintptr_t)to & 15) == 0 && n >= 16) {
			struct vb_u128 v;

			piece = 16;
			memcpy(&v, from, 16);
			store16((struct vb_u128 *)to, v);
			if (n == 16)
				barrier();
		} else {
			if (((uintptr_t)to & 7) == 0 && n >= 8)
				piece = 8;
			store_small(to, from, piece, n == piece);
		}
		to += piece;
		from += piece;
		n -= piece;
	}
}

/* ---- atomics ---- */

static inline uint64_t do_mcas64(uint64_t *w, uint64_t expect, uint64_t expect_mask, uint64_t value,
				 uint64_t value_mask)
{
	uint64_t old;

	if (expect_mask == 0 && value_mask == UINT64_MAX)
		return __atomic_exchange_n(w, value, __ATOMIC_SEQ_CST);
	old = __atomic_load_n(w, __ATOMIC_SEQ_CST);
	/* Each lost race is another client's success. */
	while (((old ^ expect) & expect_mask) == 0 &&
	       !__atomic_compare_exchange_n(w, &old, vb_mask_apply64(old, value, value_mask), false,
					    __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
		;
	return old;
}

static inline uint64_t do_mfaa64(uint64_t *w, uint64_t add, uint64_t bounds)
{
	uint64_t old = __atomic_load_n(w, __ATOMIC_SEQ_CST);

	while (!__atomic_compare_exchange_n(w, &old, vb_field_add64(old, add, bounds), false,
					    __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
		;
	return old;
}

/* The first guess may be torn or old: then the swap fails and brings the whole value.  Two 8-byte
 * loads cost less than a first swap that is likely to fail. */
static inline struct vb_u128 guess16(const struct vb_u128 *w)
{
	return (struct vb_u128){.lo = __atomic_load_n(&w->lo, __ATOMIC_RELAXED),
				.hi = __atomic_load_n(&w->hi, __ATOMIC_RELAXED)};
}

static inline struct vb_u128 do_mcas128(struct vb_u128 *w, struct vb_u128 expect,
					struct vb_u128 expect_mask, struct vb_u128 value,
					struct vb_u128 value_mask)
{
	struct vb_u128 old = guess16(w), found;

	for (;;) {
		bool match = (((old.lo ^ expect.lo) & expect_mask.lo) |
			      ((old.hi ^ expect.hi) & expect_mask.hi)) == 0;
		struct vb_u128 next = old;

		if (match) {
			next.lo = vb_mask_apply64(old.lo, value.lo, value_mask.lo);
			next.hi = vb_mask_apply64(old.hi, value.hi, value_mask.hi);
		}
		/* Also a value that does not match is swapped with itself: that proves it was
		 * whole. */
		found = swap_if16(w, old, next);
		if (vb_u128_eq(found, old))
			return old;
		old = found;
	}
}

static inline struct vb_u128 do_mfaa128(struct vb_u128 *w, struct vb_u128 add,
					struct vb_u128 bounds)
{
	struct vb_u128 old = guess16(w), found;

	for (;;) {
		found = swap_if16(w, old, vb_field_add128(old, add, bounds));
		if (vb_u128_eq(found, old))
			return old;
		old = found;
	}
}

/* ---- single verbs without a batch ---- */

int shm_faa64(struct vb_ep *ep, vb_addr a, uint64_t add, uint64_t *old)
{
	uint64_t *w = locate((struct shm_ep *)ep, a, 8, 8);

	if (vb_unlikely(w == NULL))
		return refuse((struct shm_ep *)ep, a, 8);
	*old = __atomic_fetch_add(w, add, __ATOMIC_SEQ_CST);
	return 0;
}

int shm_cas64(struct vb_ep *ep, vb_addr a, uint64_t expect, uint64_t value, uint64_t *old)
{
	uint64_t *w = locate((struct shm_ep *)ep, a, 8, 8);

	if (vb_unlikely(w == NULL))
		return refuse((struct shm_ep *)ep, a, 8);
	__atomic_compare_exchange_n(w, &expect, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
	*old = expect;
	return 0;
}

int shm_mcas64(struct vb_ep *ep, vb_addr a, uint64_t expect, uint64_t expect_mask, uint64_t value,
	       uint64_t value_mask, uint64_t *old)
{
	uint64_t *w = locate((struct shm_ep *)ep, a, 8, 8);

	if (vb_unlikely(w == NULL))
		return refuse((struct shm_ep *)ep, a, 8);
	*old = do_mcas64(w, expect, expect_mask, value, value_mask);
	return 0;
}

int shm_read64(struct vb_ep *ep, vb_addr a, uint64_t *out)
{
	uint64_t *w = locate((struct shm_ep *)ep, a, 8, 8);

	if (vb_unlikely(w == NULL))
		return refuse((struct shm_ep *)ep, a, 8);
	*out = __atomic_load_n(w, __ATOMIC_SEQ_CST);
	return 0;
}

int shm_mcas128(struct vb_ep *ep, vb_addr a, struct vb_u128 expect, struct vb_u128 expect_mask,
		struct vb_u128 value, struct vb_u128 value_mask, struct vb_u128 *old)
{
	struct vb_u128 *w = locate((struct shm_ep *)ep, a, 16, 16);

	if (vb_unlikely(w == NULL))
		return refuse((struct shm_ep *)ep, a, 16);
	*old = do_mcas128(w, expect, expect_mask, value, value_mask);
	return 0;
}

int shm_mfaa128(struct vb_ep *ep, vb_addr a, struct vb_u128 add, struct vb_u128 bounds,
		struct vb_u128 *old)
{
	struct vb_u128 *w = locate((struct shm_ep *)ep, a, 16, 16);

	if (vb_unlikely(w == NULL))
		return refuse((struct shm_ep *)ep, a, 16);
	*old = do_mfaa128(w, add, bounds);
	return 0;
}

/* ---- batches ---- */

static int move(struct shm_ep *e, struct vb_verb *v)
{
	void *at = v->len <= e->node_bytes ? locate(e, v->addr, v->len, 1) : NULL;

	if (at == NULL)
		return refuse(e, v->addr, v->len);
	if (v->op == VB_OP_READ)
		copy_out(v->buf, at, v->len);
	else
		copy_in(at, v->buf, v->len);
	return 0;
}

/* WRITE_NOTIFY finds a place for the message first: the WRITE happens if it can be told, or not. */
static int notify(struct shm_ep *e, struct vb_verb *v)
{
	struct shm_place place;
	int err;

	if (v->op == VB_OP_WRITE_NOTIFY) {
		if (v->len > e->node_bytes || locate(e, v->addr, v->len, 1) == NULL)
			return refuse(e, v->addr, v->len);
		if (vb_peer_node(v->peer) != vb_addr_node(v->addr))
			return -EINVAL;
	}
	err = shm_ring_reserve(e, v->peer, &place);
	if (err != 0)
		return err;
	if (v->op == VB_OP_WRITE_NOTIFY)
		(void)move(e, v);
	shm_ring_publish(e, &place, v->msg);
	return 0;
}

static int execute(struct shm_ep *e, struct vb_verb *v)
{
	struct vb_ep *ep = &e->ep;
	uint64_t *w;

	if (v->not_after_ns != 0 && vb_ep_now(ep) > v->not_after_ns)
		return -VB_ETOOLATE;
	switch ((enum vb_op)v->op) {
	case VB_OP_READ:
	case VB_OP_WRITE:
		return move(e, v);
	case VB_OP_CAS64:
		return shm_cas64(ep, v->addr, v->compare.lo, v->swap.lo, &v->old.lo);
	case VB_OP_FAA64:
		return shm_faa64(ep, v->addr, v->compare.lo, &v->old.lo);
	case VB_OP_MCAS64:
		return shm_mcas64(ep, v->addr, v->compare.lo, v->compare_mask.lo, v->swap.lo,
				  v->swap_mask.lo, &v->old.lo);
	case VB_OP_MFAA64:
		w = locate(e, v->addr, 8, 8);
		if (w == NULL)
			return refuse(e, v->addr, 8);
		v->old.lo = do_mfaa64(w, v->compare.lo, v->compare_mask.lo);
		return 0;
	case VB_OP_MCAS128:
		return shm_mcas128(ep, v->addr, v->compare, v->compare_mask, v->swap, v->swap_mask,
				   &v->old);
	case VB_OP_MFAA128:
		return shm_mfaa128(ep, v->addr, v->compare, v->compare_mask, &v->old);
	case VB_OP_SEND:
	case VB_OP_WRITE_NOTIFY:
		return notify(e, v);
	case VB_OP_COUNT:
		break;
	}
	return -EINVAL;
}

/* A verb that fails does not stop those behind it. */
int shm_post(struct vb_ep *ep, struct vb_batch *batch)
{
	for (unsigned i = 0; i < batch->n; i++)
		batch->verbs[i].status = execute((struct shm_ep *)ep, &batch->verbs[i]);
	return 0;
}
