/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HdrHistogram's counts array with unit magnitude 0 and 3 significant digits: bucket 0 holds 2048
 * values one by one; each further bucket doubles the range and has 1024 new sub-buckets, so that a
 * value is kept to within 1 part in 1024.
 */
#include "base/hist.h"

#include <math.h>
#include <string.h>

#include "base/compiler.h"

#define SUB_COUNT (1u << VB_HIST_SUB_BITS)
#define SUB_HALF  (SUB_COUNT / 2)

void vb_hist_init(struct vb_hist *h)
{
	memset(h, 0, sizeof(*h));
	h->min = UINT64_MAX;
}

static inline unsigned bucket_of(uint64_t value)
{
	return 64u - VB_HIST_SUB_BITS - (unsigned)__builtin_clzll(value | (SUB_COUNT - 1));
}

static inline unsigned index_of(uint64_t value)
{
	unsigned bucket = bucket_of(value);
	unsigned sub = (unsigned)(value >> bucket);

	/* Bucket b > 0 uses its upper half only: its lower half is all of the buckets below. */
	return (bucket + 1) * SUB_HALF + sub - SUB_HALF;
}

static uint64_t lowest_at(unsigned index)
{
	unsigned bucket = index / SUB_HALF, sub = index % SUB_HALF + SUB_HALF;

	if (bucket == 0)
		return index;
	return (uint64_t)sub << (bucket - 1);
}

static uint64_t highest_at(unsigned index)
{
	unsigned bucket = index / SUB_HALF;

	return lowest_at(index) + (bucket <= 1 ? 0 : (1ull << (bucket - 1)) - 1);
}

void vb_hist_record(struct vb_hist *h, uint64_t value)
{
	unsigned i;

	if (vb_unlikely(value >= VB_HIST_MAX))
		value = VB_HIST_MAX - 1;
	i = index_of(value);
	vb_assert(i < VB_HIST_COUNTS);
	h->counts[i]++;
	h->total++;
	h->sum += (double)value;
	if (value < h->min)
		h->min = value;
	if (value > h->max)
		h->max = value;
}

void vb_hist_merge(struct vb_hist *into, const struct vb_hist *from)
{
	if (from->total == 0)
		return;
	for (unsigned i = 0; i < VB_HIST_COUNTS; i++)
		into->counts[i] += from->counts[i];
	into->total += from->total;
	into->sum += from->sum;
	if (from->min < into->min)
		into->min = from->min;
	if (from->max > into->max)
		into->max = from->max;
}

uint64_t vb_hist_percentile(const struct vb_hist *h, double p)
{
	uint64_t want, seen = 0;

	if (h->total == 0)
		return 0;
	if (p <= 0)
		return h->min;
	/* The next smaller double: 99.9 % of 1000 is 999 values, not the 1000 that rounding up the
	 * nearest double to 0.999 would give. */
	want = (uint64_t)ceil(nextafter(p, 0) * (double)h->total / 100);
	if (p >= 100 || want >= h->total)
		return h->max;
	for (unsigned i = 0; i < VB_HIST_COUNTS; i++) {
		seen += h->counts[i];
		if (seen >= want && want > 0) {
			uint64_t v = highest_at(i);

			return v < h->max ? v : h->max;
		}
	}
	return h->max;
}

double vb_hist_mean(const struct vb_hist *h)
{
	return h->total ? h->sum / (double)h->total : 0;
}

static double deviation(const struct vb_hist *h)
{
	double mean = vb_hist_mean(h), sum = 0;

	for (unsigned i = 0; i < VB_HIST_COUNTS; i++) {
		double d = (double)(lowest_at(i) + highest_at(i)) / 2 - mean;

		if (h->counts[i])
			sum += d * d * (double)h->counts[i];
	}
	return h->total ? sqrt(sum / (double)h->total) : 0;
}

static uint64_t count_up_to(const struct vb_hist *h, uint64_t value)
{
	uint64_t n = 0;
	unsigned last = index_of(value < VB_HIST_MAX ? value : VB_HIST_MAX - 1);

	for (unsigned i = 0; i <= last; i++)
		n += h->counts[i];
	return n;
}

void vb_hist_print_hgrm(const struct vb_hist *h, FILE *to, double scale)
{
	const unsigned ticks_per_half = 5;
	double p = 0;

	fprintf(to, "%12s %14s %10s %14s\n\n", "Value", "Percentile", "TotalCount",
		"1/(1-Percentile)");
	while (h->total) {
		uint64_t v = vb_hist_percentile(h, p);
		uint64_t n = count_up_to(h, v);
		double halvings, left = 1 - p / 100;

		if (n >= h->total || left <= 0)
			break;
		fprintf(to, "%12.3f %2.12f %10llu %14.2f\n", (double)v / scale, p / 100,
			(unsigned long long)n, 1 / left);
		/* Five steps to each halving of what is left above. */
		halvings = floor(log2(1 / left)) + 1;
		p += 100.0 / (ticks_per_half * pow(2, halvings));
	}
	if (h->total)
		fprintf(to, "%12.3f %2.12f %10llu\n", (double)h->max / scale, 1.0,
			(unsigned long long)h->total);
	fprintf(to, "#[Mean    = %12.3f, StdDeviation   = %12.3f]\n", vb_hist_mean(h) / scale,
		deviation(h) / scale);
	fprintf(to, "#[Max     = %12.3f, Total count    = %12llu]\n", (double)h->max / scale,
		(unsigned long long)h->total);
	fprintf(to, "#[Buckets = %12d, SubBuckets     = %12d]\n", VB_HIST_BUCKETS, SUB_COUNT);
}
