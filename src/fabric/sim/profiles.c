/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the simulator knows of NICs: the numbers.  Where each is from: sources.c.
 *
 * Buckets: the NIC serialises atomics whose addresses agree in the low 12 bits (Sherman, SIGMOD
 * 2022, section 3.2.2, after Kalia et al.); we take them as 512 buckets of one 8-byte word each.
 *
 * `-card` is a profile with all that its card is known to do (doc/model.md); the one without stays
 * as it is, for what has been measured with it.
 */
#include "fabric/sim/inner.h"

#define CX5                                                                                        \
	.one_way_ns = 600, .post_ns = 90, .poll_ns = 60, .read_ns = 300, .write_ns = 50,           \
	.atomic64_ns = 450, .atomic128_ns = 660, .word64_busy_ns = 446, .word128_busy_ns = 654,    \
	.inbound_ns = 20, .outbound_ns = 20, .handler_ns = 200, .line_ns = 5,                      \
	.verb_bound_ns = 1000000

#define CX3                                                                                        \
	.one_way_ns = 750, .post_ns = 90, .poll_ns = 60, .read_ns = 300, .write_ns = 50,           \
	.atomic64_ns = 450, .atomic128_ns = 660, .word64_busy_ns = 446, .word128_busy_ns = 654,    \
	.inbound_ns = 38, .outbound_ns = 45, .handler_ns = 200, .line_ns = 9,                      \
	.verb_bound_ns = 1000000

/* Of clients that have a dynamic connection (DC) each for messages: from Connect-IB on. */
#define DC .connect_ns = 1000, .hear_ns = 2660, .recv_ns = 90, .send_waits = true

/* Not of the card: coroutines that share a core, memory of the own node. */
#define HOST .switch_ns = 20, .own_ns = 100

#define EDR .answer_byte_ps = 80, .port_byte_ps = 80
#define FDR .answer_byte_ps = 147, .port_byte_ps = 147

const struct vb_sim_profile vb_sim_profiles[] = {
	{
		.name = "cx5",
		.summary = "ConnectX-5, 100 Gb/s InfiniBand, one switch",
		.sources =
			"ShiftLock (RTT, first atomic 2.05 us); Kalia ATC'16 (2.24 M/s on one "
			"word); "
			"Sherman SIGMOD'22 (50 M/s inbound, 12-bit buckets); eRPC NSDI'19, FaSST "
			"OSDI'16 (CPU); ConnectX-5 product brief; the rest estimated",
		.own = sim_sources_cx5,
		CX5,
		.masked64 = true,
		.masked128 = true,
	},
	{
		.name = "cx3",
		.summary = "ConnectX-3, 56 Gb/s InfiniBand, three switches",
		.sources = "HERD SIGCOMM'14 on the same cluster as DSLR (READ 2 us, 26 M/s in, "
			   "22 M/s out); FDR's rate; the rest as cx5, estimated",
		.own = sim_sources_cx3,
		CX3,
		.masked64 = true,
	},
	{
		.name = "plain64",
		.summary = "cx5 with plain 64-bit CAS and FAA only",
		.sources = "cx5's; the InfiniBand base specification has no masked atomics",
		.own = sim_sources_plain64,
		.like = "cx5",
		CX5,
	},
	{
		.name = "zero",
		.summary = "every step takes a few ns: for exploring interleavings fast",
		.sources = "none: no machine is like this",
		.own = sim_sources_zero,
		.one_way_ns = 5,
		.post_ns = 1,
		.poll_ns = 1,
		.read_ns = 1,
		.write_ns = 1,
		.atomic64_ns = 1,
		.atomic128_ns = 1,
		.word64_busy_ns = 1,
		.word128_busy_ns = 1,
		.inbound_ns = 1,
		.outbound_ns = 1,
		.handler_ns = 1,
		.verb_bound_ns = 100000,
		.masked64 = true,
		.masked128 = true,
	},
	/* ---- from here on: not drawn (VB_SIM_PROFILES_DRAWN) ---- */
	{
		.name = "cx5-card",
		.summary = "cx5 with the card's atomics unit, links and messages",
		.sources = "cx5's; ShiftLock's artifact (34.6 M/s atomics a card; MCS's "
			   "handover of 4.6 us), sections 2.3 (one word), 3.2 (connections) and "
			   "table 4 (order); EDR's rate",
		.own = sim_sources_cx5_card,
		.like = "cx5",
		CX5,
		.atomics_unit_ns = 29,
		.word_ns = 260,
		.in_order = true,
		EDR,
		HOST,
		.answers_max = 16,
		DC,
		.masked64 = true,
		.masked128 = true,
	},
	{
		.name = "cx4-card",
		.summary = "ConnectX-4, 100 Gb/s InfiniBand: as cx5-card, hardly anything is known",
		.sources = "EDR's rate; the rest as cx5-card, estimated",
		.own = sim_sources_cx4_card,
		CX5,
		.atomics_unit_ns = 29,
		.word_ns = 260,
		.in_order = true,
		EDR,
		HOST,
		.answers_max = 16,
		DC,
		.masked64 = true,
		.masked128 = true,
	},
	{
		.name = "cx3-card",
		.summary = "cx3 with the card's atomics unit and links",
		.sources = "cx3's; rdma_bench (2.7 M/s atomics a card); FDR's rate",
		.own = sim_sources_cx3_card,
		.like = "cx3",
		CX3,
		.atomics_unit_ns = 370,
		FDR,
		HOST,
		.answers_max = 16,
		.masked64 = true,
	},
};
const unsigned vb_sim_profile_count = VB_ARRAY_SIZE(vb_sim_profiles);
