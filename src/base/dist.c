/* SPDX-License-Identifier: Apache-2.0 */
#define VB_LOG_ROOM "dist"
#include "base/dist.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

/* The integral of x^-theta from a to b.  expm1 keeps its digits where theta is next to 1 and both
 * powers next to each other; the limit is the logarithm. */
static double integral(double a, double b, double theta)
{
	double s = 1 - theta;

	return s == 0 ? log(b / a) : pow(a, s) * expm1(s * log(b / a)) / s;
}

/* Terms summed one by one; the rest by Euler and Maclaurin, whose first omitted term,
 * theta (theta + 1) (theta + 2) / 720 a^(-theta - 3), is then below 1e-15. */
#define ZETA_HEAD 10000ull

static double zeta(uint64_t n, double theta)
{
	uint64_t head = n < ZETA_HEAD ? n : ZETA_HEAD;
	double sum = 0, a = (double)head, b = (double)n;

	/* Small terms first. */
	for (uint64_t i = head; i >= 1; i--)
		sum += pow((double)i, -theta);
	if (n == head)
		return sum;
	return sum + integral(a, b, theta) + (pow(b, -theta) - pow(a, -theta)) / 2 +
	       theta * (pow(a, -theta - 1) - pow(b, -theta - 1)) / 12;
}

/* integral(1, x) and its inverse. */
static double big_h(double x, double theta)
{
	return integral(1, x, theta);
}

static double big_h_inverse(double y, double theta)
{
	double s = 1 - theta;

	/* Rounding may carry y past the integral to infinity. */
	return s == 0 ? exp(y) : exp(log1p(fmax(y * s, -1)) / s);
}

static void init_zipf(struct vb_dist *d, double theta)
{
	double n = (double)d->n;

	d->theta = theta;
	d->zetan = zeta(d->n, theta);
	if (theta < 1) {
		d->kind = VB_DIST_ZIPF_GRAY;
		d->alpha = 1 / (1 - theta);
		d->two_items = 1 + pow(0.5, theta);
		d->eta = d->n <= 2
				 ? 1
				 : -expm1((1 - theta) * log(2 / n)) / (1 - d->two_items / d->zetan);
		return;
	}
	d->kind = VB_DIST_ZIPF_REJECT;
	d->h_x1 = big_h(1.5, theta) - 1;
	d->h_n = big_h(n + 0.5, theta);
	d->squeeze = 2 - big_h_inverse(big_h(2.5, theta) - pow(2, -theta), theta);
}

static int parse_exponent(const char *text, const char *number, double lo, double hi, double *out)
{
	char *end;

	*out = strtod(number, &end);
	if (end == number || *end || !(*out >= lo && *out <= hi))
		return vb_fail(-EINVAL,
			       "distribution '%s': the exponent must be a number from %g to %g",
			       text, lo, hi);
	return 0;
}

int vb_dist_init(struct vb_dist *d, const char *text, uint64_t n)
{
	double x;
	int err;

	if (n == 0)
		return vb_fail(-EINVAL, "distribution '%s' over no items", text);
	*d = (struct vb_dist){.kind = VB_DIST_UNIFORM, .n = n};
	if (!strcmp(text, "uniform"))
		return 0;
	if (!strncmp(text, "zipf:", 5))
		err = parse_exponent(text, text + 5, 0, 10, &x);
	else if (!strncmp(text, "powerlaw:", 9))
		err = parse_exponent(text, text + 9, 1.000001, 10, &x);
	else
		return vb_fail(-EINVAL,
			       "there is no distribution '%s'; uniform, zipf:THETA and "
			       "powerlaw:ALPHA are",
			       text);
	if (err == 0)
		init_zipf(d, x);
	return err;
}

static uint64_t next_gray(const struct vb_dist *d, struct vb_rng *r)
{
	double u = vb_rng_unit(r), uz = u * d->zetan;
	uint64_t k;

	if (uz < 1)
		return 0;
	if (uz < d->two_items)
		return d->n > 1;
	k = (uint64_t)((double)d->n * exp(d->alpha * log1p(d->eta * (u - 1))));
	return k < d->n ? k : d->n - 1;
}

/* Accepts at once inside the squeeze, which is nearly always; the expected number of rounds is
 * below 1.1 for every theta and n. */
static uint64_t next_reject(const struct vb_dist *d, struct vb_rng *r)
{
	for (;;) {
		double u = d->h_n + vb_rng_unit(r) * (d->h_x1 - d->h_n);
		double x = big_h_inverse(u, d->theta);
		double k = floor(x + 0.5);

		if (k < 1)
			k = 1;
		else if (k > (double)d->n)
			k = (double)d->n;
		if (k - x <= d->squeeze || u >= big_h(k + 0.5, d->theta) - pow(k, -d->theta))
			return (uint64_t)k - 1;
	}
}

uint64_t vb_dist_next(const struct vb_dist *d, struct vb_rng *r)
{
	switch (d->kind) {
	case VB_DIST_ZIPF_GRAY:
		return next_gray(d, r);
	case VB_DIST_ZIPF_REJECT:
		return next_reject(d, r);
	default:
		return vb_rng_below(r, d->n);
	}
}

double vb_dist_probability(const struct vb_dist *d, uint64_t k)
{
	if (d->kind == VB_DIST_UNIFORM)
		return 1.0 / (double)d->n;
	return pow((double)k + 1, -d->theta) / d->zetan;
}
