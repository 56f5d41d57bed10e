/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the simulator knows of NICs.  No number here is fitted to what a lock achieves; each comes
 * from a measurement of single verbs, a data sheet, or is an estimate that says so and why.
 *
 * cx5: ConnectX-5, 100 Gb/s InfiniBand, one switch, hosts with PCIe 3.0 as in ShiftLock.
 *
 *   one_way_ns       600  Small RC SENDs take about 0.8 us from call to call (perftest ib_send_lat,
 *                         100 Gb/s generation); without post, poll and the two NICs' message times
 *                         600 ns are left.  The product brief of ConnectX-5 says "sub-600ns
 *                         latency".  Check: READ = 90+20+600+20+300+600+60 = 1.69 us, the "RTT at
 *                         most 2 us" of ShiftLock section 1.
 *   post_ns           90  CPU: write a 64-byte request, ring the doorbell.  Estimate: eRPC (NSDI
 *                         2019) does some 10 M small RPCs/s on one core, so posting costs below
 *                         100 ns.
 *   poll_ns           60  CPU: find the completion.  Estimate: one cache line from the NIC's DMA
 *                         write plus the polling loop's mean distance to it.
 *   read_ns          300  One PCIe 3.0 read round trip of the target's NIC.  Estimate from
 *                         pcie-bench (SIGCOMM 2018: about 400 to 500 ns device to memory and back
 *                         on NICs of that time) less what ConnectX overlaps.
 *   write_ns          50  PCIe writes are posted; the acknowledgement does not wait for them.
 *                         Estimate.
 *   atomic64_ns      450  One PCIe read, then a write: the same measurement as the next line.
 *   word64_busy_ns   446  1 / 2.24 M per second: fetch-and-adds on one word of a Connect-IB (mlx5,
 *                         the NIC family of ShiftLock's "from Connect-IB to ConnectX-7"), Kalia et
 *                         al., USENIX ATC 2016, whose sequencer is 50 times as fast at 122 M/s.
 *                         The NIC keeps the word while it reads and writes over PCIe.
 *   atomic128_ns     660  ShiftLock table 3: the first (16-byte, extended) atomic takes 2.05 us
 *                         with five clients; all other terms of the path add up to 1390 ns.
 *   word128_busy_ns  654  446 scaled by 660/450.  Estimate: no measurement of 16-byte atomics on
 *                         one word is published; that they are slower is said in ShiftLock
 *                         section 4.6.
 *   inbound_ns        20  50 M one-sided requests/s at one NIC.  Sherman (SIGMOD 2022) has small
 *                         WRITEs above 50 M/s on ConnectX-5; eRPC's README counts 60 to 80 M small
 *                         RPCs/s a NIC; the data sheet's 200 M messages/s is the wire's bound, not
 *                         memory's.
 *   outbound_ns       20  As inbound.  Estimate.
 *   handler_ns       200  Server CPU per request, its reply's post_ns not counted: 290 ns together,
 *                         3.4 M requests/s on a core.  Between eRPC's 10 M/s, which batches, and
 *                         the 3 to 4 M/s per core of FaSST (OSDI 2016) on hosts like ShiftLock's.
 *   line_ns            5  64 bytes at 100 Gb/s: 5.12 ns.
 *   verb_bound_ns   1 ms  Ack timeout 2^5 x 4.096 us, seven tries: 0.92 ms; a choice of the
 *                         requester, made when the connection is set up.
 *
 * cx3: ConnectX-3, 56 Gb/s InfiniBand, the cluster of DSLR (CloudLab's Apt, r320 nodes, PCIe
 * 3.0), on which HERD (SIGCOMM 2014) measured single verbs.
 *
 *   one_way_ns       750  HERD has READs at about 2 us: 90+45+750+38+300+750+60 = 2.03 us.  More
 *                         than cx5's: an older card, up to three switches in DSLR's network.
 *   inbound_ns        38  26 M READs/s into one NIC (HERD; its WRITEs reach 35 M/s).
 *   outbound_ns       45  22 M READs/s out of one NIC (HERD).
 *   read_ns, write_ns, atomic64_ns, word64_busy_ns
 *                         As cx5: the same PCIe generation, and the path over it decides.  An
 *                         estimate: of this card's atomics on one word we know no number that we
 *                         could check.
 *   post_ns, poll_ns, handler_ns
 *                         As cx5: processors of the same time and clock.
 *   line_ns            9  64 bytes at FDR's 54.3 Gb/s: 9.4 ns.
 *
 * It has masked atomics of 64 bits (the driver's extended atomics) and none of 128.
 *
 * Buckets: the NIC serialises atomics whose addresses agree in the low 12 bits (Sherman, SIGMOD
 * 2022, section 3.2.2, after Kalia et al.); we take them as 512 buckets of one 8-byte word each.
 *
 * ATC 2016's, HERD's, Sherman's, FaSST's and pcie-bench's numbers are quoted from the papers as
 * remembered and cross-checked by their abstracts only; HERD's by nothing.
 */
#include "fabric/sim/sim.h"

#define CX5                                                                                        \
	.one_way_ns = 600, .post_ns = 90, .poll_ns = 60, .read_ns = 300, .write_ns = 50,           \
	.atomic64_ns = 450, .atomic128_ns = 660, .word64_busy_ns = 446, .word128_busy_ns = 654,    \
	.inbound_ns = 20, .outbound_ns = 20, .handler_ns = 200, .line_ns = 5,                      \
	.verb_bound_ns = 1000000

const struct vb_sim_profile vb_sim_profiles[] = {
	{
		.name = "cx5",
		.summary = "ConnectX-5, 100 Gb/s InfiniBand, one switch",
		.sources =
			"ShiftLock (RTT, first atomic 2.05 us); Kalia ATC'16 (2.24 M/s on one "
			"word); "
			"Sherman SIGMOD'22 (50 M/s inbound, 12-bit buckets); eRPC NSDI'19, FaSST "
			"OSDI'16 (CPU); ConnectX-5 product brief; the rest estimated",
		CX5,
		.masked64 = true,
		.masked128 = true,
	},
	{
		.name = "cx3",
		.summary = "ConnectX-3, 56 Gb/s InfiniBand, three switches",
		.sources = "HERD SIGCOMM'14 on the same cluster as DSLR (READ 2 us, 26 M/s in, "
			   "22 M/s out); FDR's rate; the rest as cx5, estimated",
		.one_way_ns = 750,
		.post_ns = 90,
		.poll_ns = 60,
		.read_ns = 300,
		.write_ns = 50,
		.atomic64_ns = 450,
		.atomic128_ns = 660,
		.word64_busy_ns = 446,
		.word128_busy_ns = 654,
		.inbound_ns = 38,
		.outbound_ns = 45,
		.handler_ns = 200,
		.line_ns = 9,
		.verb_bound_ns = 1000000,
		.masked64 = true,
	},
	{
		.name = "plain64",
		.summary = "cx5 with plain 64-bit CAS and FAA only",
		.sources = "cx5's; the InfiniBand base specification has no masked atomics",
		CX5,
	},
	{
		.name = "zero",
		.summary = "every step takes a few ns: for exploring interleavings fast",
		.sources = "none: no machine is like this",
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
};
const unsigned vb_sim_profile_count = VB_ARRAY_SIZE(vb_sim_profiles);
