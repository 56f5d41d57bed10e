/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calls to etcd that peers makes, in both forms: JSON for the HTTP gateway, and gRPC (a five-byte
 * head and a protobuf message as the body of an HTTP/2 request).
 */
#ifndef VB_BENCH_ETCD_WIRE_H
#define VB_BENCH_ETCD_WIRE_H

#include <stddef.h>
#include <stdint.h>

#include "peers.h"

enum etcd_call { ETCD_LOCK, ETCD_UNLOCK, ETCD_PUT, ETCD_CALLS };

/* A key as the wire carries it: base64 in JSON, bytes in gRPC. */
struct etcd_key {
	char data[256];
	size_t len;
};

#define ETCD_REQUEST 1024

const char *etcd_path(enum peer_wire wire, enum etcd_call call);
/* LOCK: name and lease.  UNLOCK: key.  PUT: name as key and value.  Returns the length. */
size_t etcd_encode(enum peer_wire wire, enum etcd_call call, const char *name, int64_t lease,
		   const struct etcd_key *key, uint8_t out[ETCD_REQUEST]);
/* The key that LOCK's answer names.  0 or -EPROTO. */
int etcd_decode_lock(enum peer_wire wire, const uint8_t *body, size_t len, struct etcd_key *key);

#endif
