/* SPDX-License-Identifier: Apache-2.0 */
/* What is said of a check, and the check of a fabric: it is opened, and its verbs are tried. */
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/opt.h"
#include "fabric/fabric.h"
#include "lab/doctor/inner.h"

void doctor_say(struct doctor *d, enum doctor_verdict v, const char *what, const char *fmt, ...)
{
	static const char *const words[DOCTOR_VERDICTS] = {"ok  ", "warn", "fail", "none"};
	va_list args;

	d->count[v]++;
	fprintf(d->to, "%s  %-12s ", words[v], what);
	va_start(args, fmt);
	vfprintf(d->to, fmt, args);
	va_end(args);
	fputc('\n', d->to);
}

size_t doctor_next_name(const char **rest, const char **name)
{
	*rest += strspn(*rest, ",");
	*name = *rest;
	*rest += strcspn(*rest, ",");
	return (size_t)(*rest - *name);
}

enum doctor_verdict doctor_absent(const struct doctor *d, const char *fabric)
{
	const char *rest = d->need != NULL ? d->need : "", *name;
	size_t len;

	while ((len = doctor_next_name(&rest, &name)) != 0)
		if (strlen(fabric) == len && strncmp(fabric, name, len) == 0)
			return DOCTOR_FAIL;
	return DOCTOR_NONE;
}

/* One of each kind of verb; NULL, or what went wrong. */
static const char *try_verbs(struct vb_fabric *f)
{
	struct vb_msg out = {.subject = 7, .len = 3, .data = "vb"}, in;
	struct vb_u128 old, three = {3, 4}, none = {0, 0};
	struct vb_ep *ep = NULL;
	const char *wrong = NULL;
	uint64_t word = 0;
	vb_addr at;
	bool fresh;

	if (vb_region(f, 0, "doctor", 64, &at, &fresh) != 0)
		return "no region can be made";
	if (vb_ep_open(f, 0, &ep) != 0)
		return "no endpoint can be opened";
	if (vb_faa64(ep, at, 5, &word) != 0 || word != 0 || vb_read64(ep, at, &word) != 0 ||
	    word != 5)
		wrong = "a 64-bit fetch-and-add did not add";
	else if (f->caps.flags & VB_CAP_MASKED128 &&
		 (vb_mfaa128(ep, at + 16, three, none, &old) != 0 ||
		  vb_mfaa128(ep, at + 16, none, none, &old) != 0 || !vb_u128_eq(old, three)))
		wrong = "a 128-bit fetch-and-add did not add";
	else if (f->caps.flags & VB_CAP_SEND &&
		 (vb_send_wait(ep, ep->self, &out) != 0 ||
		  (vb_ep_recv(ep, &in) != 0 &&
		   (vb_ep_wait(ep, vb_ep_now(ep) + 1000000000) != 0 || vb_ep_recv(ep, &in) != 0)) ||
		  in.subject != 7))
		wrong = "a message did not arrive";
	vb_ep_close(ep);
	return wrong;
}

/* How long a fetch-and-add takes, the median of a few; 0 where time is virtual. */
static uint64_t faa_ns(struct vb_fabric *f)
{
	enum { TIMES = 101 };
	struct vb_ep *ep = NULL;
	uint64_t ns[TIMES], old;
	vb_addr at;
	bool fresh;

	if (f->caps.flags & VB_CAP_VIRTUAL || vb_region(f, 0, "doctor", 64, &at, &fresh) != 0 ||
	    vb_ep_open(f, 0, &ep) != 0)
		return 0;
	for (unsigned i = 0; i < TIMES; i++) {
		uint64_t start = vb_clock_ns();

		if (vb_faa64(ep, at + 8, 1, &old) != 0) {
			vb_ep_close(ep);
			return 0;
		}
		ns[i] = vb_clock_ns() - start;
		for (unsigned k = i; k > 0 && ns[k] < ns[k - 1]; k--) {
			uint64_t swap = ns[k];

			ns[k] = ns[k - 1];
			ns[k - 1] = swap;
		}
	}
	vb_ep_close(ep);
	return ns[TIMES / 2];
}

static void say_works(struct doctor *d, const char *label, struct vb_fabric *f)
{
	uint64_t ns = faa_ns(f);
	char took[16] = "", in[24] = "";

	if (ns != 0)
		snprintf(in, sizeof(in), " (%s)", vb_format_ns(took, sizeof(took), (double)ns));
	doctor_say(d, DOCTOR_OK, label, "opens; fetch-and-add%s, READ, %s%sSEND work", in,
		   f->caps.flags & VB_CAP_MASKED128 ? "128-bit atomics, " : "",
		   f->caps.flags & VB_CAP_SEND ? "" : "no ");
}

void doctor_fabric(struct doctor *d, const char *label, const char *fabric, const char *options)
{
	const struct vb_fabric_params p = {
		.fabric = fabric, .options = options, .node_bytes = 1 << 20, .endpoints = 16};
	struct vb_fabric *f = NULL;
	const char *wrong;
	char why[512] = "";
	int err;

	vb_log_capture_begin(why, sizeof(why));
	err = vb_fabric_open(&p, &f);
	wrong = err == 0 ? try_verbs(f) : NULL;
	vb_log_capture_end();
	if (err)
		doctor_say(d, DOCTOR_FAIL, label, "cannot be opened: %s",
			   why[0] != '\0' ? why : vb_strerror(err));
	else if (wrong != NULL)
		doctor_say(d, DOCTOR_FAIL, label,
			   "%s%s%s; please report it with the output of `verbena doctor`", wrong,
			   why[0] != '\0' ? ": " : "", why);
	else
		say_works(d, label, f);
	vb_fabric_close(f);
}
