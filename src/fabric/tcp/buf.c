/* SPDX-License-Identifier: Apache-2.0 */
/* Buffers of a connection. */
#include "fabric/tcp/inner.h"

bool tcp_buf_reserve(struct tcp_buf *b, size_t bytes)
{
	size_t used = tcp_buf_bytes(b), room = b->room;
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

void tcp_buf_take(struct tcp_buf *b, size_t bytes)
{
	b->begin += bytes;
	if (b->begin < b->end)
		return;
	b->begin = b->end = 0;
	if (b->room > TCP_ROOM_KEPT)
		tcp_buf_free(b);
}

void tcp_buf_free(struct tcp_buf *b)
{
	free(b->at);
	*b = (struct tcp_buf){0};
}
