/* SPDX-License-Identifier: Apache-2.0 */
/* The parameters of a profile by name: their values, their sources, and effects that are off. */
#define VB_LOG_ROOM "sim"
#include "fabric/sim/inner.h"

#include "base/log.h"
#include "base/opt.h"

#define NUMBER(field)                                                                              \
	{                                                                                          \
		.name = #field, .offset = offsetof(struct vb_sim_profile, field),                  \
		.bytes = sizeof(uint64_t)                                                          \
	}
#define EFFECT(field, called, is)                                                                  \
	{                                                                                          \
		.name = #field, .effect = called, .what = is,                                      \
		.offset = offsetof(struct vb_sim_profile, field), .bytes = sizeof(uint64_t)        \
	}
#define EFFECT_FLAG(field, called, is)                                                             \
	{                                                                                          \
		.name = #field, .effect = called, .what = is,                                      \
		.offset = offsetof(struct vb_sim_profile, field), .bytes = sizeof(bool)            \
	}
#define FLAG(field)                                                                                \
	{                                                                                          \
		.name = #field, .offset = offsetof(struct vb_sim_profile, field),                  \
		.bytes = sizeof(bool)                                                              \
	}

const struct vb_sim_param vb_sim_params[] = {
	NUMBER(one_way_ns),
	NUMBER(post_ns),
	NUMBER(poll_ns),
	NUMBER(read_ns),
	NUMBER(write_ns),
	NUMBER(atomic64_ns),
	NUMBER(atomic128_ns),
	NUMBER(word64_busy_ns),
	NUMBER(word128_busy_ns),
	NUMBER(inbound_ns),
	NUMBER(outbound_ns),
	NUMBER(handler_ns),
	NUMBER(line_ns),
	NUMBER(verb_bound_ns),
	EFFECT(atomics_unit_ns, "atomics-unit",
	       "one unit takes up a card's atomics, one after the other"),
	EFFECT(word_ns, "busy-word", "a word is busy for so long, of 8 bytes or 16"),
	EFFECT(answer_byte_ps, "answer-wire",
	       "what a node answers leaves byte by byte, by the link that its requests use"),
	EFFECT(port_byte_ps, "port-wire",
	       "what comes to a node comes byte by byte, by its one link"),
	EFFECT(connect_ns, "messages",
	       "a client's connection goes to one other at a time, and has to be made anew"),
	EFFECT(hear_ns, "messages", "a client has a message later than its card does"),
	EFFECT(recv_ns, "messages", "... and gives the card another buffer for the next one"),
	EFFECT_FLAG(send_waits, "messages",
		    "a client that sends one stands still until it is there"),
	EFFECT(answers_max, "outstanding",
	       "so many READs and atomics of a connection are under way"),
	EFFECT(own_ns, "own-node", "clients may use their own node's memory as such (option own)"),
	EFFECT(switch_ns, "core",
	       "clients may share a core (option cores), which changes from one to another"),
	EFFECT_FLAG(in_order, "in-order",
		    "an atomic that waits for its word keeps those behind it waiting"),
	FLAG(masked64),
	FLAG(masked128),
};
const unsigned vb_sim_param_count = VB_ARRAY_SIZE(vb_sim_params);

const char *const vb_sim_ground_names[] = {
	[VB_SIM_DATA_SHEET] = "data sheet", [VB_SIM_MEASURED] = "measured",
	[VB_SIM_DERIVED] = "derived",       [VB_SIM_CALIBRATED] = "calibrated",
	[VB_SIM_CHOICE] = "choice",         [VB_SIM_ESTIMATE] = "estimate",
};

uint64_t vb_sim_value(const struct vb_sim_profile *p, const struct vb_sim_param *param)
{
	const char *at = (const char *)p + param->offset;

	return param->bytes == 1 ? *(const bool *)at : *(const uint64_t *)at;
}

const struct vb_sim_profile *vb_sim_profile_find(const char *name)
{
	for (unsigned i = 0; i < vb_sim_profile_count; i++)
		if (strcmp(vb_sim_profiles[i].name, name) == 0)
			return &vb_sim_profiles[i];
	return NULL;
}

const struct vb_sim_source *vb_sim_source_of(const struct vb_sim_profile *p, const char *param)
{
	const struct vb_sim_source *s = p->own;

	for (; s->text != NULL; s++)
		if (s->param == NULL || strcmp(s->param, param) == 0)
			return s;
	if (p->like == NULL || vb_sim_profile_find(p->like) == NULL)
		return NULL;
	return vb_sim_source_of(vb_sim_profile_find(p->like), param);
}

bool vb_sim_has_effect(const struct vb_sim_profile *p, const char *effect)
{
	for (unsigned i = 0; i < vb_sim_param_count; i++)
		if (vb_sim_params[i].effect != NULL &&
		    strcmp(vb_sim_params[i].effect, effect) == 0 &&
		    vb_sim_value(p, &vb_sim_params[i]) != 0)
			return true;
	return false;
}

/* By its effect, or alone, by its own name. */
static bool is_called(const struct vb_sim_param *param, const char *word, size_t len)
{
	return (strlen(param->effect) == len && strncmp(param->effect, word, len) == 0) ||
	       (strlen(param->name) == len && strncmp(param->name, word, len) == 0);
}

static int switch_off(struct vb_sim_profile *p, const char *effect, size_t len)
{
	const char *names[VB_ARRAY_SIZE(vb_sim_params)];
	char word[VB_HINT_BYTES], hint[VB_HINT_BYTES];
	bool was_on = false;
	size_t n = 0;

	for (unsigned i = 0; i < vb_sim_param_count; i++) {
		const struct vb_sim_param *param = &vb_sim_params[i];

		if (param->effect == NULL || vb_sim_value(p, param) == 0)
			continue;
		names[n++] = param->effect;
		if (!is_called(param, effect, len))
			continue;
		memset((char *)p + param->offset, 0, param->bytes);
		was_on = true;
	}
	if (was_on)
		return 0;
	snprintf(word, sizeof(word), "%.*s", (int)sim_min(len, sizeof(word) - 1), effect);
	return vb_fail(-EINVAL,
		       "without: profile '%s' has no effect '%s' that is on%s; `verbena list` "
		       "shows its effects",
		       p->name, word, vb_did_you_mean(hint, word, names, n));
}

int vb_sim_without(struct vb_sim_profile *p, const char *effects)
{
	int err = 0;

	for (const char *at = effects; err == 0; at++) {
		size_t len = strcspn(at, "+");

		err = switch_off(p, at, len);
		at += len;
		if (*at == '\0')
			break;
	}
	return err;
}
