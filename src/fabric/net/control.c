/* SPDX-License-Identifier: Apache-2.0 */
/* Control messages that have come, told apart by their sizes and kinds, and handed to whom they concern. */
#define VB_LOG_ROOM "net"
#include <inttypes.h>

#include "base/log.h"
#include "fabric/net/core.h"
#include "fabric/net/elastic.h"

#define MEANINGLESS_AGAIN_NS 10000000000ull

/* A line in ten seconds at most: whoever sends one may send many. */
static void means_nothing(struct net_fabric *f, uint32_t from_host, const void *data, size_t bytes)
{
	char version[16] = "none";
	uint64_t now = vb_clock_gettime_ns();

	f->core->meaningless++;
	if (now < f->core->meaningless_again_ns)
		return;
	f->core->meaningless_again_ns = now + MEANINGLESS_AGAIN_NS;
	if (bytes >= 2)
		snprintf(version, sizeof(version), "%u", ((const uint8_t *)data)[1]);
	vb_warn("process %u sent a control message of %zu bytes (version %s, ours is %d) that "
		"means "
		"nothing; dropped, the %" PRIu64 "th such",
		from_host, bytes, version, CONTROL_VERSION, f->core->meaningless);
}

void net_control_came(struct net_fabric *f, uint32_t from_host, const void *data, size_t bytes)
{
	bool ours = bytes >= 2 && ((const uint8_t *)data)[1] == CONTROL_VERSION;

	if (!ours || !(net_region_control(f, from_host, data, bytes) ||
		       net_hold_control(f, from_host, data, bytes) ||
		       (f->elastic != NULL && net_elastic_control(f, from_host, data, bytes))))
		means_nothing(f, from_host, data, bytes);
}
