/* SPDX-License-Identifier: Apache-2.0 */
/* A node's part of a table, copied from afar: header, tuples and index lie at the same offsets as there. */
#define VB_LOG_ROOM "store"
#include <errno.h>
#include <sys/mman.h>

#include "base/log.h"
#include "store/store.h"

#define PIECE    262144u
#define AGAIN    20u /* a READ without an answer is tried again so often, so long after it */
#define AGAIN_NS 50000000ull

static int read_piece(struct vb_ep *ep, vb_addr at, void *to, uint32_t bytes)
{
	int err = vb_read(ep, at, to, bytes);

	for (unsigned i = 0;
	     i < AGAIN && (err == -VB_EUNKNOWN || err == -VB_EPEERGONE || err == -VB_ETOOLATE);
	     i++) {
		(void)vb_ep_sleep(ep, AGAIN_NS);
		err = vb_read(ep, at, to, bytes);
	}
	return err;
}

static int copy(struct vb_table_node *n, struct vb_ep *ep, uint64_t offset, uint64_t bytes)
{
	const uint16_t node = vb_addr_node(n->header);
	int err = 0;

	for (uint64_t done = 0; done < bytes && err == 0; done += PIECE) {
		const uint64_t left = bytes - done;

		err = read_piece(ep, vb_addr_make(node, offset + done),
				 n->index.segment + offset + done,
				 (uint32_t)(left < PIECE ? left : PIECE));
	}
	return err;
}

int vb_table_mirror(struct vb_table *t, uint16_t node, struct vb_ep *ep)
{
	struct vb_table_node *n = &t->node[node];
	const uint64_t at = vb_addr_offset(n->header);
	struct vb_table_header *h;
	void *segment;
	int err;

	vb_assert(n->index.header == NULL);
	/* Only what is copied of it takes memory. */
	segment = mmap(NULL, n->fabric->node_bytes, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (segment == MAP_FAILED)
		return vb_fail(-ENOMEM, "no memory for a copy of table '%s'", t->name);
	n->index.segment = segment;
	h = (void *)(n->index.segment + at);
	n->index.header = h;
	err = copy(n, ep, at, sizeof(*h));
	if (err == 0 &&
	    (h->tuples > h->room || h->index_at > n->fabric->node_bytes ||
	     h->slots > (n->fabric->node_bytes - h->index_at) / sizeof(struct vb_slot) ||
	     h->room != t->room))
		err = vb_fail(-EPROTO, "table '%s' on node %u says of itself what cannot be",
			      t->name, node);
	if (err == 0)
		err = copy(n, ep, at + sizeof(*h), h->tuples * t->layout.stride);
	if (err == 0)
		err = copy(n, ep, h->index_at, h->slots * sizeof(struct vb_slot));
	if (err != 0)
		vb_table_unmirror(t, node);
	return err;
}

void vb_table_unmirror(struct vb_table *t, uint16_t node)
{
	struct vb_table_node *n = &t->node[node];

	if (n->index.header == NULL)
		return;
	(void)munmap(n->index.segment, n->fabric->node_bytes);
	n->index.header = NULL;
	n->index.segment = NULL;
}
