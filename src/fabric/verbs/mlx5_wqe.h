/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The work requests of ConnectX's extended atomics, as bytes: pure functions, no device.
 *
 * A request is a row of 16-byte segments, everything in network order (layout: infiniband/mlx5dv.h,
 * "WQE"; operands: doc/verbs-mlx5.md says which sources were read):
 *
 *	control   opmod | index | opcode, queue pair | segments, flags
 *	remote    address, key
 *	operands  MCAS: swap, compare, swap mask, compare mask.  MFAA: add, field boundaries.
 *	          Each 8 or 16 bytes; of 16 bytes the word at the lower address first
 *	data      where the previous value goes
 *
 * The driver writes the index and the signature.
 *
 * The previous value of a 16-byte atomic comes back as two words in network order.  That of an
 * 8-byte one comes in the order that the device is set to (atomic_req_8B_endianness_mode): Linux
 * sets it to the host's where it can, and older cards cannot.
 */
#ifndef VB_FABRIC_VERBS_MLX5_WQE_H
#define VB_FABRIC_VERBS_MLX5_WQE_H

#include "fabric/verbs/ext.h"

#define VERBS_MLX5_WQE_MAX 112u /* MCAS128: 7 segments */
#define VERBS_MLX5_BLOCK   64u  /* the send queue's unit; a request takes whole ones */

/* The request's bytes, a multiple of 16; 0 if the device cannot do it (a field of an MFAA128 that
 * spans both words). */
unsigned verbs_mlx5_encode(const struct verbs_ext_wr *wr, uint32_t qpn,
			   uint8_t wqe[VERBS_MLX5_WQE_MAX]);
/* be64: 8-byte results are in network order. */
struct vb_u128 verbs_mlx5_decode(uint8_t op, const void *result, bool be64);

/* What QUERY_HCA_CAP answers about atomics (ATOMIC capabilities, current values). */
#define VERBS_MLX5_QUERY_IN  16u
#define VERBS_MLX5_QUERY_OUT (16u + 4096u)
struct verbs_mlx5_atomics {
	bool cas, faa, masked_cas, masked_faa;
	uint16_t sizes_qp, sizes_dc; /* bit n: 2^n bytes */
	bool be64;                   /* 8-byte results in network order */
};
void verbs_mlx5_query(uint8_t in[VERBS_MLX5_QUERY_IN]);
/* 0, or -EIO: the device refused the query. */
int verbs_mlx5_answer(const uint8_t out[VERBS_MLX5_QUERY_OUT], struct verbs_mlx5_atomics *a);
/* VB_CAP_MASKED64, VB_CAP_MASKED128. */
uint32_t verbs_mlx5_caps(const struct verbs_mlx5_atomics *a);

#endif
