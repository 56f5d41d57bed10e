/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses of processes: told, read, looked up. */
#define VB_LOG_ROOM "tcp"
#include <arpa/inet.h>
#include <endian.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>

#include "base/log.h"
#include "fabric/tcp/inner.h"

static const struct sockaddr_in *v4(const struct sockaddr_storage *sa)
{
	return (const struct sockaddr_in *)sa;
}

static const struct sockaddr_in6 *v6(const struct sockaddr_storage *sa)
{
	return (const struct sockaddr_in6 *)sa;
}

static void put16(uint8_t *to, uint16_t v)
{
	v = htole16(v);
	memcpy(to, &v, sizeof(v));
}

static uint16_t get16(const uint8_t *from)
{
	uint16_t v;

	memcpy(&v, from, sizeof(v));
	return le16toh(v);
}

void tcp_address_put(uint8_t to[TCP_ADDRESS], const struct tcp_address *a)
{
	bool four = a->sa.ss_family == AF_INET;

	memset(to, 0, TCP_ADDRESS);
	put16(to, TCP_VERSION);
	put16(to + 2, a->flags);
	put16(to + 4, four ? 4 : 6);
	put16(to + 6, ntohs(four ? v4(&a->sa)->sin_port : v6(&a->sa)->sin6_port));
	if (four)
		memcpy(to + 8, &v4(&a->sa)->sin_addr, 4);
	else
		memcpy(to + 8, &v6(&a->sa)->sin6_addr, 16);
}

int tcp_address_get(struct tcp_address *out, const void *from, size_t bytes)
{
	const uint8_t *p = from;
	struct sockaddr_in *in = (struct sockaddr_in *)&out->sa;
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&out->sa;

	memset(out, 0, sizeof(*out));
	if (bytes != TCP_ADDRESS || get16(p) != TCP_VERSION || get16(p + 6) == 0)
		return -EPROTO;
	out->flags = get16(p + 2);
	if (get16(p + 4) == 4) {
		in->sin_family = AF_INET;
		in->sin_port = htons(get16(p + 6));
		memcpy(&in->sin_addr, p + 8, 4);
		out->len = sizeof(*in);
	} else if (get16(p + 4) == 6) {
		in6->sin6_family = AF_INET6;
		in6->sin6_port = htons(get16(p + 6));
		memcpy(&in6->sin6_addr, p + 8, 16);
		out->len = sizeof(*in6);
	} else {
		return -EPROTO;
	}
	return 0;
}

/* Each machine numbers its interfaces itself: the others could not call us by it. */
static bool of_one_link(const struct sockaddr *a)
{
	return a->sa_family == AF_INET6 &&
	       IN6_IS_ADDR_LINKLOCAL(&((const struct sockaddr_in6 *)a)->sin6_addr);
}

static void keep(struct tcp_address *out, const struct sockaddr *a)
{
	out->len =
		a->sa_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
	memcpy(&out->sa, a, out->len);
}

/* An address of an interface, of IPv4 if it has one; false: there is no such interface. */
static bool of_interface(struct tcp_address *out, const char *name)
{
	struct ifaddrs *list;

	if (if_nametoindex(name) == 0 || getifaddrs(&list) != 0)
		return false;
	for (const struct ifaddrs *i = list; i != NULL; i = i->ifa_next) {
		const struct sockaddr *a = i->ifa_addr;

		if (a == NULL || strcmp(i->ifa_name, name) != 0)
			continue;
		if (a->sa_family == AF_INET ||
		    (a->sa_family == AF_INET6 && out->len == 0 && !of_one_link(a)))
			keep(out, a);
		if (a->sa_family == AF_INET)
			break;
	}
	freeifaddrs(list);
	return out->len != 0;
}

int tcp_address_find(struct tcp_address *out, const char *host)
{
	const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
	struct addrinfo *list = NULL;
	int err;

	memset(out, 0, sizeof(*out));
	if (of_interface(out, host))
		return 0;
	err = getaddrinfo(host, "0", &hints, &list);
	if (err != 0)
		return vb_fail(-EINVAL, "'%s', where this process is to listen: %s", host,
			       err == EAI_SYSTEM ? strerror(errno) : gai_strerror(err));
	for (const struct addrinfo *a = list; a != NULL && out->len == 0; a = a->ai_next) {
		if (a->ai_family != AF_INET && a->ai_family != AF_INET6)
			continue;
		keep(out, a->ai_addr);
	}
	freeaddrinfo(list);
	if (out->len == 0)
		return vb_fail(-EINVAL, "'%s' has no internet address", host);
	if (of_one_link((const struct sockaddr *)&out->sa))
		return vb_fail(-EINVAL, "'%s' holds on one link only: name another address", host);
	return 0;
}

void tcp_address_set_port(struct tcp_address *a, uint16_t port)
{
	if (a->sa.ss_family == AF_INET)
		((struct sockaddr_in *)&a->sa)->sin_port = htons(port);
	else
		((struct sockaddr_in6 *)&a->sa)->sin6_port = htons(port);
}

bool tcp_address_is_loopback(const struct tcp_address *a)
{
	if (a->sa.ss_family == AF_INET)
		return ntohl(v4(&a->sa)->sin_addr.s_addr) >> 24 == 127;
	return IN6_IS_ADDR_LOOPBACK(&v6(&a->sa)->sin6_addr);
}

bool tcp_address_same_owner(const struct sockaddr_storage *a, const struct sockaddr_storage *b)
{
	if (a->ss_family != b->ss_family)
		return false;
	if (a->ss_family == AF_INET)
		return v4(a)->sin_addr.s_addr == v4(b)->sin_addr.s_addr;
	return memcmp(&v6(a)->sin6_addr, &v6(b)->sin6_addr, 8) == 0;
}

void tcp_address_say(const struct sockaddr_storage *sa, char to[TCP_ADDRESS_TEXT])
{
	char host[INET6_ADDRSTRLEN] = "?";

	if (sa->ss_family == AF_INET) {
		inet_ntop(AF_INET, &v4(sa)->sin_addr, host, sizeof(host));
		snprintf(to, TCP_ADDRESS_TEXT, "%s:%u", host, ntohs(v4(sa)->sin_port));
	} else {
		inet_ntop(AF_INET6, &v6(sa)->sin6_addr, host, sizeof(host));
		snprintf(to, TCP_ADDRESS_TEXT, "[%s]:%u", host, ntohs(v6(sa)->sin6_port));
	}
}
