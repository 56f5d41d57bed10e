/* SPDX-License-Identifier: Apache-2.0 */
/* Sites that are counted and chances that are taken while a thread explores: see sometimes.h. */
#include "base/sometimes.h"

#include <string.h>

/* A chance is open in one seed out of so many. */
#define SEEDS_PER_CHANCE 4

#undef vb_exploring /* nothing awaits here */
__thread bool vb_exploring __attribute__((tls_model("initial-exec")));

/* What the linker calls the ends of the section; a program without a site has none. */
extern struct vb_site *__start_vb_sites[] __attribute__((weak, visibility("hidden")));
extern struct vb_site *__stop_vb_sites[] __attribute__((weak, visibility("hidden")));

struct vb_site **vb_sites_all(unsigned *n)
{
	*n = (unsigned)(__stop_vb_sites - __start_vb_sites);
	return __start_vb_sites;
}

/* Each has a stream of its own: one more site leaves the others' seeds as they were. */
static void draw(struct vb_site *s, uint64_t seed)
{
	static const double chances[] = {0.01, 0.1, 0.5};
	uint64_t stream = 14695981039346656037ull;

	for (const char *c = s->name; *c != '\0'; c++)
		stream = (stream ^ (unsigned char)*c) * 1099511628211ull;
	vb_rng_seed(&s->rng, seed, stream);
	s->chance = 0;
	if (vb_rng_below(&s->rng, SEEDS_PER_CHANCE) == 0)
		s->chance = chances[vb_rng_below(&s->rng, VB_ARRAY_SIZE(chances))];
}

void vb_sites_begin(uint64_t seed)
{
	unsigned n;
	struct vb_site **all = vb_sites_all(&n);

	for (unsigned i = 0; i < n; i++) {
		all[i]->hits = 0;
		if (all[i]->is_chance)
			draw(all[i], seed);
	}
	vb_exploring = true;
}

void vb_sites_end(void)
{
	vb_exploring = false;
}

bool vb_site_takes_chance(struct vb_site *s)
{
	if (s->chance == 0 || !vb_rng_chance(&s->rng, s->chance))
		return false;
	s->hits++;
	return true;
}

bool vb_site_is_of(const struct vb_site *s, const char *groups)
{
	const char *end = strchr(s->name, ':'), *word = s->name;

	while (word < end) {
		size_t n = strcspn(word, " :");

		for (const char *g = groups; *g != '\0'; g += strspn(g, " ")) {
			size_t len = strcspn(g, " ");

			if (len == n && memcmp(g, word, n) == 0)
				return true;
			g += len;
		}
		word += n + 1;
	}
	return false;
}

const char *vb_site_event(const struct vb_site *s)
{
	return strchr(s->name, ':') + 2;
}
