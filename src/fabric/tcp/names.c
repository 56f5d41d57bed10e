/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of servers, looked up again: one that stands for another address when its server is lost has moved, and one
 * that stood for none may stand for one later.
 *
 * To look a name up may take as long as it likes, and the engine waits for nobody.  So a thread does it, one for a name
 * at a time, and who dials uses what it has found when it has; nothing waits for the thread, not even the fabric's end.
 */
#define VB_LOG_ROOM "tcp"
#include <ctype.h>
#include <netdb.h>

#include "base/log.h"
#include "fabric/tcp/inner.h"

#define LOOK_EACH_NS 1000000000ull

/* Shared by the thread and who has begun it; the last of them frees it. */
struct tcp_lookup {
	uint32_t users; /* atomic */
	bool done;      /* atomic: err and at are written */
	int err;
	struct tcp_address at;
	struct tcp_name name;
};

static int resolve(const struct tcp_name *name, int flags, struct tcp_address *at)
{
	const struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
				       .ai_flags = AI_NUMERICSERV | flags};
	struct addrinfo *list = NULL, *a;
	int err = getaddrinfo(name->host, name->port, &hints, &list);

	memset(at, 0, sizeof(*at));
	if (err != 0)
		return err;
	for (a = list; a != NULL && a->ai_family != AF_INET && a->ai_family != AF_INET6;)
		a = a->ai_next;
	if (a != NULL) {
		memcpy(&at->sa, a->ai_addr, a->ai_addrlen);
		at->len = a->ai_addrlen;
		/* Machines of one cluster are alike in this; who is not, refuses. */
		at->flags = crypto_aead_aes256gcm_is_available() ? TCP_HAS_AES : 0;
	}
	freeaddrinfo(list);
	return a != NULL ? 0 : EAI_NONAME;
}

static bool is_port(const char *text)
{
	unsigned long port = 0;

	for (const char *p = text; *p != '\0'; p++) {
		if (!isdigit((unsigned char)*p) || p - text > 4)
			return false;
		port = 10 * port + (unsigned long)(*p - '0');
	}
	return port > 0 && port <= UINT16_MAX;
}

int tcp_name_find(struct tcp_name *name, struct tcp_address *at)
{
	int err;

	if (!is_port(name->port))
		return vb_fail(-EINVAL, "server '%s:%s': that is no port", name->host, name->port);
	name->is_address = resolve(name, AI_NUMERICHOST, at) == 0;
	if (name->is_address)
		return 0;
	err = resolve(name, 0, at);
	if (err != 0)
		vb_warn("server '%s:%s': %s; it is looked up again", name->host, name->port,
			err == EAI_SYSTEM ? strerror(errno) : gai_strerror(err));
	return err != 0 ? -ENOENT : 0;
}

static void put(struct tcp_lookup *l)
{
	if (__atomic_sub_fetch(&l->users, 1, __ATOMIC_ACQ_REL) == 0)
		free(l);
}

static void *look_up(void *arg)
{
	struct tcp_lookup *l = arg;

	l->err = resolve(&l->name, 0, &l->at);
	__atomic_store_n(&l->done, true, __ATOMIC_RELEASE);
	put(l);
	return NULL;
}

static void begin(struct tcp_peer *p, const struct tcp_name *name)
{
	struct tcp_lookup *l = calloc(1, sizeof(*l));
	pthread_attr_t attr;
	pthread_t thread;

	if (l == NULL || pthread_attr_init(&attr) != 0) {
		free(l);
		return; /* at the next try */
	}
	l->users = 2;
	l->name = *name;
	if (pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED) != 0 ||
	    pthread_create(&thread, &attr, look_up, l) != 0)
		free(l);
	else
		p->lookup = l;
	(void)pthread_attr_destroy(&attr);
}

static void take(struct tcp_peer *p, const struct tcp_name *name)
{
	struct tcp_lookup *l = p->lookup;
	char at[TCP_ADDRESS_TEXT];

	if (l == NULL || !__atomic_load_n(&l->done, __ATOMIC_ACQUIRE))
		return;
	if (l->err == 0 &&
	    (p->address.len != l->at.len || memcmp(&p->address.sa, &l->at.sa, l->at.len) != 0)) {
		p->address = l->at;
		tcp_address_say(&p->address.sa, at);
		vb_info("server '%s' is at %s", name->host, at);
	}
	p->lookup = NULL;
	put(l);
}

void tcp_name_look(struct tcp_via *t, uint32_t server)
{
	struct tcp_peer *p = &t->peer[server];
	const struct tcp_name *name = t->name != NULL ? &t->name[server] : NULL;
	uint64_t now = vb_clock_ns();

	if (name == NULL || name->is_address)
		return;
	take(p, name);
	if (p->lookup != NULL || (p->looked_ns != 0 && now - p->looked_ns < LOOK_EACH_NS))
		return;
	p->looked_ns = now;
	begin(p, name);
}

void tcp_names_free(struct tcp_via *t)
{
	for (uint32_t i = 0; t->name != NULL && t->peer != NULL && i < t->w->f->hosts; i++)
		if (t->peer[i].lookup != NULL)
			put(t->peer[i].lookup);
	free(t->name);
	t->name = NULL;
}
