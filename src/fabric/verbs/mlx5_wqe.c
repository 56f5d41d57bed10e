/* SPDX-License-Identifier: Apache-2.0 */
/* See mlx5_wqe.h. */
#include "fabric/verbs/mlx5_wqe.h"

#include <endian.h>

#define OPCODE_MASKED_CAS 0x14u
#define OPCODE_MASKED_FAA 0x15u
/* Bit 3: extended, the operands stand in the request.  Below: log2 of the size in 4-byte words. */
#define OPMOD(log_bytes) (8u | ((log_bytes)-2u))

#define FLAG_COMPLETION 0x08u
#define FLAG_FENCE      0x80u

#define QUERY_HCA_CAP 0x100u
#define CAP_ATOMIC    3u
#define CAP_CURRENT   1u
#define CAPS_AT       16u /* of the answer: behind status and syndrome */

static uint8_t *put32(uint8_t *to, uint32_t v)
{
	v = htobe32(v);
	memcpy(to, &v, sizeof(v));
	return to + sizeof(v);
}

static uint8_t *put64(uint8_t *to, uint64_t v)
{
	v = htobe64(v);
	memcpy(to, &v, sizeof(v));
	return to + sizeof(v);
}

static uint8_t *put_operand(uint8_t *to, struct vb_u128 v, bool wide)
{
	to = put64(to, v.lo);
	return wide ? put64(to, v.hi) : to;
}

unsigned verbs_mlx5_encode(const struct verbs_ext_wr *wr, uint32_t qpn,
			   uint8_t wqe[VERBS_MLX5_WQE_MAX])
{
	bool wide = wr->op == VB_OP_MCAS128 || wr->op == VB_OP_MFAA128;
	bool add = wr->op == VB_OP_MFAA64 || wr->op == VB_OP_MFAA128;
	uint32_t bytes = wide ? 16 : 8;
	uint32_t segments = 3 + (add ? 2 : 4) * bytes / 16;
	uint8_t *to = wqe;

	/* The adder is 64 bits wide (max_fa_bit_boundary): nothing is carried into the other
	 * word. */
	if (add && wide && !(wr->compare_mask.lo >> 63))
		return 0;
	to = put32(to, OPMOD(wide ? 4u : 3u) << 24 | (add ? OPCODE_MASKED_FAA : OPCODE_MASKED_CAS));
	to = put32(to, qpn << 8 | segments);
	to = put32(to, (wr->signalled ? FLAG_COMPLETION : 0) | (wr->fence ? FLAG_FENCE : 0));
	to = put32(to, 0);

	to = put64(to, wr->remote);
	to = put32(to, wr->rkey);
	to = put32(to, 0);

	if (add) {
		to = put_operand(to, wr->compare, wide);
		to = put_operand(to, wr->compare_mask, wide);
	} else {
		to = put_operand(to, wr->swap, wide);
		to = put_operand(to, wr->compare, wide);
		to = put_operand(to, wr->swap_mask, wide);
		to = put_operand(to, wr->compare_mask, wide);
	}

	to = put32(to, bytes);
	to = put32(to, wr->lkey);
	to = put64(to, (uintptr_t)wr->result);
	return (unsigned)(to - wqe);
}

struct vb_u128 verbs_mlx5_decode(uint8_t op, const void *result, bool be64)
{
	struct vb_u128 v = {0, 0};

	if (op == VB_OP_MCAS128 || op == VB_OP_MFAA128) {
		memcpy(&v, result, 16);
		return (struct vb_u128){.lo = be64toh(v.lo), .hi = be64toh(v.hi)};
	}
	memcpy(&v.lo, result, 8);
	if (be64)
		v.lo = be64toh(v.lo);
	return v;
}

/* ---- capabilities ---- */

void verbs_mlx5_query(uint8_t in[VERBS_MLX5_QUERY_IN])
{
	memset(in, 0, VERBS_MLX5_QUERY_IN);
	put32(in, QUERY_HCA_CAP << 16);
	put32(in + 4, CAP_ATOMIC << 1 | CAP_CURRENT);
}

static uint32_t get16(const uint8_t *at)
{
	return (uint32_t)at[0] << 8 | at[1];
}

int verbs_mlx5_answer(const uint8_t out[VERBS_MLX5_QUERY_OUT], struct verbs_mlx5_atomics *a)
{
	const uint8_t *caps = out + CAPS_AT;
	uint32_t ops = get16(caps + 18);

	*a = (struct verbs_mlx5_atomics){0};
	if (out[0] != 0)
		return -EIO;
	a->cas = ops & 1;
	a->faa = ops & 2;
	a->masked_cas = ops & 4;
	a->masked_faa = ops & 8;
	a->sizes_qp = (uint16_t)get16(caps + 22);
	a->sizes_dc = (uint16_t)get16(caps + 26);
	/* Two bits, 0: network order. */
	a->be64 = caps[8] >> 6 == 0;
	return 0;
}

uint32_t verbs_mlx5_caps(const struct verbs_mlx5_atomics *a)
{
	if (!a->masked_cas || !a->masked_faa)
		return 0;
	return (a->sizes_qp & 8 ? VB_CAP_MASKED64 : 0) | (a->sizes_qp & 16 ? VB_CAP_MASKED128 : 0);
}
