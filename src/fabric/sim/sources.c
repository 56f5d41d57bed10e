/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where each number of each profile is from.  Those that are calibrated, because nobody has published
 * the verb alone, are so on what locks achieve, each on one number of ShiftLock or its artifact: its
 * text says on which.  No other was set by what a lock achieves.
 *
 * ATC 2016's, HERD's, Sherman's, FaSST's, eRPC's and pcie-bench's numbers are quoted from the papers
 * as remembered and cross-checked by their abstracts only; HERD's by nothing.  ShiftLock's artifact:
 * github thustorage/shiftlock, commit 82555c0, figures of the authors' artifact evaluation, read off
 * the bars (to about 3 %).  rdma_bench: github efficient/rdma_bench, atomics-sequencer/main.h, a
 * comment.  RCC: the logs in the authors' repository, github Alchem-Lab/drtmh.
 */
#include "fabric/sim/inner.h"

const struct vb_sim_source sim_sources_cx5[] = {
	{"one_way_ns", VB_SIM_DERIVED,
	 "Small RC SENDs take about 0.8 us from call to call (perftest ib_send_lat, 100 Gb/s "
	 "generation); without post, poll and the two NICs' message times 600 ns are left.  "
	 "The product brief of ConnectX-5 says \"sub-600ns latency\".  Check: READ = "
	 "90+20+600+20+300+600+60 = 1.69 us, the \"RTT at most 2 us\" of ShiftLock section 1."},
	{"post_ns", VB_SIM_ESTIMATE,
	 "CPU: write a 64-byte request, ring the doorbell.  eRPC (NSDI 2019) does some 10 M "
	 "small RPCs/s on one core, so posting costs below 100 ns."},
	{"poll_ns", VB_SIM_ESTIMATE,
	 "CPU: find the completion.  One cache line from the NIC's DMA write plus the polling "
	 "loop's mean distance to it."},
	{"read_ns", VB_SIM_ESTIMATE,
	 "One PCIe 3.0 read round trip of the target's NIC: pcie-bench (SIGCOMM 2018: about "
	 "400 to 500 ns device to memory and back on NICs of that time) less what ConnectX "
	 "overlaps."},
	{"write_ns", VB_SIM_ESTIMATE,
	 "PCIe writes are posted; the acknowledgement does not wait for them."},
	{"atomic64_ns", VB_SIM_DERIVED,
	 "One PCIe read, then a write: the same measurement as word64_busy_ns."},
	{"atomic128_ns", VB_SIM_CALIBRATED,
	 "On ShiftLock table 3: the first (16-byte, extended) atomic takes 2.05 us with five "
	 "clients; all other terms of the path add up to 1390 ns."},
	{"word64_busy_ns", VB_SIM_DERIVED,
	 "1 / 2.24 M per second: fetch-and-adds on one word of a Connect-IB (mlx5, the NIC "
	 "family of ShiftLock's \"from Connect-IB to ConnectX-7\"), Kalia et al., USENIX ATC "
	 "2016, whose sequencer is 50 times as fast at 122 M/s.  The NIC keeps the word while "
	 "it reads and writes over PCIe."},
	{"word128_busy_ns", VB_SIM_ESTIMATE,
	 "446 scaled by 660/450: no measurement of 16-byte atomics on one word is published; "
	 "that they are slower is said in ShiftLock section 4.6."},
	{"inbound_ns", VB_SIM_DERIVED,
	 "50 M one-sided requests/s at one NIC.  Sherman (SIGMOD 2022) has small WRITEs above "
	 "50 M/s on ConnectX-5; eRPC's README counts 60 to 80 M small RPCs/s a NIC; the data "
	 "sheet's 200 M messages/s is the wire's bound, not memory's."},
	{"outbound_ns", VB_SIM_ESTIMATE, "As inbound."},
	{"handler_ns", VB_SIM_ESTIMATE,
	 "Server CPU per request, its reply's post_ns not counted: 290 ns together, 3.4 M "
	 "requests/s on a core.  Between eRPC's 10 M/s, which batches, and the 3 to 4 M/s per "
	 "core of FaSST (OSDI 2016) on hosts like ShiftLock's."},
	{"line_ns", VB_SIM_DATA_SHEET, "64 bytes at EDR's 100 Gb/s: 5.12 ns."},
	{"verb_bound_ns", VB_SIM_CHOICE,
	 "Ack timeout 2^5 x 4.096 us, seven tries: 0.92 ms; a choice of the requester, made "
	 "when the connection is set up."},
	{"masked64", VB_SIM_DATA_SHEET,
	 "Extended atomics of the mlx5 driver (ShiftLock section 3)."},
	{"masked128", VB_SIM_DATA_SHEET,
	 "Extended atomics of the mlx5 driver, of 16 bytes (ShiftLock section 3)."},
	{0},
};

const struct vb_sim_source sim_sources_cx3[] = {
	{"one_way_ns", VB_SIM_DERIVED,
	 "HERD (SIGCOMM 2014, on DSLR's cluster, CloudLab's Apt) has READs at about 2 us: "
	 "90+45+750+38+300+750+60 = 2.03 us.  More than cx5's: an older card, up to three "
	 "switches in DSLR's network."},
	{"inbound_ns", VB_SIM_MEASURED,
	 "26 M READs/s into one NIC (HERD; its WRITEs reach 35 M/s)."},
	{"outbound_ns", VB_SIM_MEASURED, "22 M READs/s out of one NIC (HERD)."},
	{"read_ns", VB_SIM_ESTIMATE,
	 "As cx5: the same PCIe generation, and the path over it decides."},
	{"write_ns", VB_SIM_ESTIMATE, "As cx5: the same PCIe generation."},
	{"atomic64_ns", VB_SIM_ESTIMATE, "As cx5: the same PCIe generation."},
	{"atomic128_ns", VB_SIM_ESTIMATE, "Not used: the card has no atomics of 128 bits."},
	{"word64_busy_ns", VB_SIM_ESTIMATE,
	 "As cx5: of this card's atomics on one word we know no number that we could check."},
	{"word128_busy_ns", VB_SIM_ESTIMATE, "Not used: the card has no atomics of 128 bits."},
	{"post_ns", VB_SIM_ESTIMATE, "As cx5: processors of the same time and clock."},
	{"poll_ns", VB_SIM_ESTIMATE, "As cx5: processors of the same time and clock."},
	{"handler_ns", VB_SIM_ESTIMATE, "As cx5: processors of the same time and clock."},
	{"line_ns", VB_SIM_DATA_SHEET, "64 bytes at FDR's 54.5 Gb/s: 9.4 ns."},
	{"verb_bound_ns", VB_SIM_CHOICE, "As cx5: a choice of the requester."},
	{"masked64", VB_SIM_DATA_SHEET, "The driver's extended atomics."},
	{"masked128", VB_SIM_DATA_SHEET, "The driver has none of 128 bits."},
	{0},
};

const struct vb_sim_source sim_sources_plain64[] = {
	{"masked64", VB_SIM_DATA_SHEET, "The InfiniBand base specification has no masked atomics."},
	{"masked128", VB_SIM_DATA_SHEET,
	 "The InfiniBand base specification has no masked atomics."},
	{0},
};

const struct vb_sim_source sim_sources_zero[] = {
	{NULL, VB_SIM_CHOICE, "No machine is like this: small, and mostly the same."},
	{0},
};

#define EDR_TEXT                                                                                   \
	"EDR: four lanes of 25.78125 Gb/s in 64b/66b, 100 Gb/s each way (user manual of the "      \
	"card)."
#define FDR_TEXT                                                                                   \
	"FDR: four lanes of 14.0625 Gb/s in 64b/66b, 54.5 Gb/s each way (user manual of the "      \
	"card)."

#define OWN_TEXT                                                                                   \
	"A line that another core of the machine has, fetched or taken over: about 100 ns across " \
	"two sockets of that time.  The cache's transfers in between are not modelled."
#define OUTSTANDING_TEXT                                                                           \
	"max_qp_rd_atom and max_qp_init_rd_atom of the card, as ibv_devinfo -v shows them: 16."

const struct vb_sim_source sim_sources_cx5_card[] = {
	{"atomics_unit_ns", VB_SIM_CALIBRATED,
	 "On the artifact evaluation of ShiftLock: under uniform locks CAS ends at 17.3 M "
	 "cycles/s, of two 8-byte atomics each, and nothing else is near its limit: 34.6 M "
	 "atomics/s, 28.9 ns each.  ShiftLock ends at 16.3 to 16.5 M, of two 16-byte ones: "
	 "taken for the same, within 6 %."},
	{"word_ns", VB_SIM_CALIBRATED,
	 "On ShiftLock section 2.3: 240 clients that CAS one lock without backoff do 15.5 thousand "
	 "cycles/s.  A release stands behind the CAS of all the others: 64.5 us less its own 2.3, "
	 "over 239, are 260 ns.  Of 16 bytes nothing is published but that the hottest lock takes "
	 "at "
	 "least 1.63 M/s (the artifact, read-only): taken for the same."},
	{"in_order", VB_SIM_CALIBRATED,
	 "On ShiftLock table 4: under CAS without backoff on 10 million locks, Zipf 0.99, half of "
	 "them writers, the first CAS of a cycle takes 38.5 us on average, though most are of "
	 "words "
	 "that nobody else wants.  So they wait behind the hot ones.  Where in the card they do is "
	 "not known."},
	{"answer_byte_ps", VB_SIM_DATA_SHEET, EDR_TEXT},
	{"port_byte_ps", VB_SIM_DATA_SHEET, EDR_TEXT},
	{"connect_ns", VB_SIM_MEASURED,
	 "ShiftLock section 3.2: a dynamic connection is made anew in less than 1 us, taken at its "
	 "bound.  Check: a SEND that is waited for takes 90+20+1000+600+20+50+600+60 = 2.44 us; "
	 "in the artifact evaluation 2.35."},
	{"hear_ns", VB_SIM_CALIBRATED,
	 "On MCS alone, in the artifact evaluation of ShiftLock: 216 to 220 thousand handovers/s, "
	 "4.55 to 4.63 us each, of the hottest lock.  All other terms explain 1.93.  What the rest "
	 "is cannot be told apart: the address handle that MCS's code makes for each SEND, the "
	 "receive queue's buffer that the card fetches, 48 busy hyperthreads on 24 cores."},
	{"recv_ns", VB_SIM_ESTIMATE, "As post_ns: one request written, one doorbell rung."},
	{"answers_max", VB_SIM_DATA_SHEET, OUTSTANDING_TEXT},
	{"own_ns", VB_SIM_ESTIMATE, OWN_TEXT},
	{"switch_ns", VB_SIM_MEASURED,
	 "RCBench, on its coroutines (Boost): a switch between two takes about 20 ns, on hosts "
	 "with "
	 "ConnectX-5."},
	{"send_waits", VB_SIM_CHOICE,
	 "ShiftLock's artifact (mcs.rs, rma_rw.rs, shiftlock/mod.rs): every SEND is signalled, and "
	 "its completion polled for at once."},
	{0},
};

const struct vb_sim_source sim_sources_cx4_card[] = {
	{"answer_byte_ps", VB_SIM_DATA_SHEET, EDR_TEXT},
	{"port_byte_ps", VB_SIM_DATA_SHEET, EDR_TEXT},
	{"answers_max", VB_SIM_DATA_SHEET, OUTSTANDING_TEXT},
	{"line_ns", VB_SIM_DATA_SHEET, "64 bytes at EDR's 100 Gb/s: 5.12 ns."},
	{"verb_bound_ns", VB_SIM_CHOICE, "As cx5: a choice of the requester."},
	{"masked64", VB_SIM_DATA_SHEET,
	 "mlx5, as ConnectX-5 (ShiftLock: \"from Connect-IB to ConnectX-7\")."},
	{"masked128", VB_SIM_DATA_SHEET,
	 "mlx5, as ConnectX-5 (ShiftLock: \"from Connect-IB to ConnectX-7\")."},
	{NULL, VB_SIM_ESTIMATE,
	 "As cx5-card: no measurement of this card's single verbs that we know.  RCC's logs "
	 "have stages of transactions only, software included."},
	{0},
};

const struct vb_sim_source sim_sources_cx3_card[] = {
	{"atomics_unit_ns", VB_SIM_MEASURED,
	 "1 / 2.7 M per second (rdma_bench).  1.8 M/s, 555 ns, when the registered memory "
	 "exceeds the CPU's cache, which this profile does not know."},
	{"answer_byte_ps", VB_SIM_DATA_SHEET, FDR_TEXT},
	{"port_byte_ps", VB_SIM_DATA_SHEET, FDR_TEXT},
	{"answers_max", VB_SIM_DATA_SHEET, OUTSTANDING_TEXT},
	{"own_ns", VB_SIM_ESTIMATE, OWN_TEXT},
	{"switch_ns", VB_SIM_ESTIMATE, "As cx5-card; of a host, not of a card."},
	{0},
};
