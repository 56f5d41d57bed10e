/* SPDX-License-Identifier: Apache-2.0 */
/* Buffers of a connection. */
#include <stdlib.h>
#include <string.h>

#include "seal/seal.h"

#define ROOM_KEPT 262144u /* an empty buffer that is larger is given back */

bool vb_buf_reserve(struct vb_buf *b, size_t bytes)
{
	size_t used = vb_buf_bytes(b), room = b->room;
	uint8_t *more;

	if (b->room - b->end >= bytes)
		return true;
	if (room - used >= bytes) {
		memmove(b->at, b->at + b->begin, used);
	} else {
		room = room < 4096 ? 4096 : room;
		while (room - used < bytes)
			room *= 2;
		more = malloc(room);
		if (more == NULL)
			return false;
		if (used > 0)
			memcpy(more, b->at + b->begin, used);
		free(b->at);
		b->at = more;
		b->room = room;
	}
	b->begin = 0;
	b->end = used;
	return true;
}

bool vb_buf_add(struct vb_buf *b, const void *bytes, size_t n)
{
	if (n == 0)
		return true;
	if (!vb_buf_reserve(b, n))
		return false;
	memcpy(b->at + b->end, bytes, n);
	b->end += n;
	return true;
}

void vb_buf_take(struct vb_buf *b, size_t bytes)
{
	b->begin += bytes;
	if (b->begin < b->end)
		return;
	b->begin = b->end = 0;
	if (b->room > ROOM_KEPT)
		vb_buf_free(b);
}

void vb_buf_free(struct vb_buf *b)
{
	free(b->at);
	*b = (struct vb_buf){0};
}
