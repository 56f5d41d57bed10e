/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What travels between the root of a cluster and its members: frames over TCP.
 *
 * A frame is a header of eight bytes, then the payload; all numbers are little-endian:
 *
 *	0        4      5         6         8
 *	| length | type | version | 'V' 'B' | payload [length]
 *
 * Each type has its least and greatest length, so that a header tells before anything is allocated
 * whether the frame is one of ours.  Everything here is pure: bytes in, a struct or -EPROTO out.
 * Texts come out with a NUL, in plain ASCII without control characters, fit to be printed.
 *
 *	member                                  root
 *	HELLO what it can and wants    ------>
 *	                               <------  MODE how frames will be protected
 *	PROOF  (proof.c)               ------>
 *	                               <------  PROOF_ROOT
 *	PROOF                          ------>
 *	JOIN who it is, its config     ------>
 *	                               <------  MEMBER for each rank, then START, when all have come
 *	PART, DATA ... of a step       ------>
 *	                               <------  RESULT, DATA ... for each part, then END
 *	PING, PONG, NOTICE, GOODBYE    <----->
 *	                               <------  GONE, SUSPECT; or, at any time, REFUSE and the end
 *
 * Behind the member's last PROOF everything is in sealed records (seal/seal.c), if MODE says so: frames one
 * behind the other, which need not begin where a record does.
 */
#ifndef VB_CLUSTER_WIRE_H
#define VB_CLUSTER_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"

#define CL_VERSION     2
#define CL_HEADER      8
#define CL_CHUNK       65536u /* the payload of DATA at most, and of every frame */
#define CL_SECRET      32
#define CL_CONFIG      16384u
#define CL_TEXT        511 /* of an error */
#define CL_HOSTNAME    64
#define CL_MACHINE     96
#define CL_WHAT        31
#define CL_NOTICE_SIZE 32
#define CL_CONTROL_MAX 1024u /* a frame that is neither JOIN nor DATA, header included */
#define CL_PROOF_MAX   (CL_CONTROL_MAX - CL_HEADER)
#define CL_JOIN_MAX    (CL_HEADER + 16 + 2 + CL_HOSTNAME + CL_MACHINE + CL_CONFIG)

enum cl_type {
	CL_HELLO = 1,
	CL_MODE,
	CL_PROOF,
	CL_PROOF_ROOT,
	CL_JOIN,
	CL_MEMBER,
	CL_START,
	CL_REFUSE,
	CL_PING,
	CL_PONG,
	CL_PART,
	CL_DATA,
	CL_RESULT,
	CL_END,
	CL_GONE,
	CL_SUSPECT,
	CL_GOODBYE,
	CL_NOTICE,
	CL_TYPES,
};

/* Of HELLO. */
#define CL_HAS_AES     1u
#define CL_WANTS_SEAL  2u /* it takes no plain frames */
#define CL_NEVER_SEALS 4u

struct cl_frame {
	enum cl_type type;
	const uint8_t *payload;
	uint32_t bytes;
};

/* A process as the others know it. */
struct cl_identity {
	uint32_t pid;
	char host[CL_HOSTNAME + 1];
	char machine[CL_MACHINE + 1]; /* the same text: the same boot of the same machine */
};

struct cl_join {
	uint32_t hosts, wanted;
	struct cl_identity who;
	const char *config; /* points into the payload; without a NUL */
	uint32_t config_bytes;
};

struct cl_member {
	uint32_t rank;
	struct cl_identity who;
};

struct cl_start {
	uint32_t rank, hosts;
	uint8_t secret[CL_SECRET]; /* masked (proof.c) */
	struct vb_clock clock;
};

struct cl_verdict { /* REFUSE and END; seq of END only */
	uint64_t seq;
	int err; /* 0 or negative */
	char text[CL_TEXT + 1];
};

struct cl_part {
	uint64_t seq, bytes, timeout_ns;
	uint8_t to;
	bool partial, barrier;
	int err; /* the process has no part to give, because of this */
	char what[CL_WHAT + 1];
};

struct cl_result {
	uint64_t seq, bytes;
	uint32_t rank;
};

struct cl_pong {
	uint64_t yours, mine;
};

struct cl_about { /* GONE: died; SUSPECT: on */
	uint32_t rank;
	bool flag;
};

/* Where in a header the version is. */
#define CL_VERSION_AT 5

/* The bytes of the first frame in buf; 0: more are needed; -EPROTO: this is no frame of ours;
 * -EPROTONOSUPPORT: another version's (never for REFUSE, whose form stays).  *why is then set, and
 * *need to the size of the frame as soon as its header is there. */
int cl_frame_get(const uint8_t *buf, size_t n, struct cl_frame *out, size_t *need,
		 const char **why);
const char *cl_type_name(enum cl_type type);

/* The payloads: 0 or -EPROTO. */
int cl_get_hello(const struct cl_frame *f, uint32_t *flags);
int cl_get_mode(const struct cl_frame *f, uint32_t *mode);
int cl_get_join(const struct cl_frame *f, struct cl_join *out);
int cl_get_member(const struct cl_frame *f, struct cl_member *out);
int cl_get_start(const struct cl_frame *f, struct cl_start *out);
int cl_get_refuse(const struct cl_frame *f, struct cl_verdict *out);
int cl_get_end(const struct cl_frame *f, struct cl_verdict *out);
int cl_get_part(const struct cl_frame *f, struct cl_part *out);
int cl_get_result(const struct cl_frame *f, struct cl_result *out);
int cl_get_ping(const struct cl_frame *f, uint64_t *time);
int cl_get_pong(const struct cl_frame *f, struct cl_pong *out);
int cl_get_about(const struct cl_frame *f, struct cl_about *out);

/* Whole frames; `to` has room for CL_CONTROL_MAX bytes (JOIN: CL_JOIN_MAX).  The bytes written. */
size_t cl_put_header(uint8_t *to, enum cl_type type, uint32_t bytes);
size_t cl_put_hello(uint8_t *to, uint32_t flags);
size_t cl_put_mode(uint8_t *to, uint32_t mode);
size_t cl_put_bytes(uint8_t *to, enum cl_type type, const void *data, uint32_t bytes);
size_t cl_put_join(uint8_t *to, const struct cl_join *j);
size_t cl_put_member(uint8_t *to, const struct cl_member *m);
size_t cl_put_start(uint8_t *to, const struct cl_start *s);
size_t cl_put_refuse(uint8_t *to, int err, const char *text);
size_t cl_put_end(uint8_t *to, const struct cl_verdict *v);
size_t cl_put_part(uint8_t *to, const struct cl_part *p);
size_t cl_put_result(uint8_t *to, const struct cl_result *r);
size_t cl_put_ping(uint8_t *to, uint64_t time);
size_t cl_put_pong(uint8_t *to, const struct cl_pong *p);
size_t cl_put_about(uint8_t *to, enum cl_type type, const struct cl_about *a);

/* A text of a peer, to be printed: all but plain ASCII becomes '?', what is too long is cut. */
void cl_copy_text(char *to, size_t size, const void *from, size_t bytes);

/* The first line in which two configurations differ, said with the name of who has `theirs`:
 * "--seed: rank 2 (...) has 7, the root has 1".  False: they agree. */
bool cl_config_differs(const char *ours, size_t our_bytes, const char *theirs, size_t their_bytes,
		       const char *who, char *text, size_t size);

#endif
