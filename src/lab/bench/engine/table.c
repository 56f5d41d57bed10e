/* SPDX-License-Identifier: Apache-2.0 */
/* Columns and lines that all tables have: see table.h. */
#include "lab/bench/engine/table.h"

void vb_bench_put_us(FILE *to, double ns)
{
	double us = ns / 1000;

	fprintf(to, us < 100 ? " %7.2f" : us < 10000 ? " %7.1f" : " %7.0f", us);
}

void vb_bench_put_percentiles(FILE *to, const struct vb_hist *h, bool tail)
{
	if (h->total == 0) {
		fprintf(to, tail ? "       -       -       -" : "       -       -");
		return;
	}
	vb_bench_put_us(to, (double)vb_hist_percentile(h, 50));
	vb_bench_put_us(to, (double)vb_hist_percentile(h, 99));
	if (tail)
		vb_bench_put_us(to, (double)vb_hist_percentile(h, 99.9));
}

void vb_bench_put_busy(FILE *to, const struct vb_busy *load)
{
	char text[160];

	if (vb_busy_is_heavy(load))
		fprintf(to,
			"    %s: latencies and rates are as much the machine's; repeat it on a "
			"quiet "
			"one\n",
			vb_busy_text(load, text, sizeof(text)));
}
