/* SPDX-License-Identifier: Apache-2.0 */
/* Opening the fabric as a server or a client of an elastic cluster: the list of servers, the key. */
#define VB_LOG_ROOM "tcp"
#include <ctype.h>
#include <stdio.h>

#include "base/log.h"
#include "fabric/tcp/inner.h"

#define LINE_MAX_BYTES TCP_NAME_MAX

/* "HOST:PORT", "[ADDRESS]:PORT" */
static int add_server(struct tcp_servers *s, const char *text, size_t bytes)
{
	char whole[LINE_MAX_BYTES], host[LINE_MAX_BYTES], *colon;
	const char *from = host;
	struct tcp_name *name;
	int err;

	if (bytes >= sizeof(whole))
		return vb_fail(-EINVAL, "a server's address of %zu characters", bytes);
	memcpy(whole, text, bytes);
	whole[bytes] = '\0';
	if (s->n == TCP_SERVERS_MAX)
		return vb_fail(-EINVAL, "more than %u servers", TCP_SERVERS_MAX);
	name = &s->name[s->n];
	memcpy(host, whole, bytes + 1);
	colon = strrchr(host, ':');
	if (colon == NULL || colon == host || colon[1] == '\0')
		return vb_fail(-EINVAL, "server '%s': HOST:PORT is expected", whole);
	*colon = '\0';
	if (host[0] == '[' && colon[-1] == ']') {
		colon[-1] = '\0';
		from++;
	}
	snprintf(name->host, sizeof(name->host), "%s", from);
	snprintf(name->port, sizeof(name->port), "%.*s", (int)sizeof(name->port) - 1, colon + 1);
	err = tcp_name_find(name, &s->at[s->n]);
	if (err != 0 && err != -ENOENT)
		return err;
	s->found += err == 0;
	s->n++;
	return 0;
}

static int read_file(struct tcp_servers *s, const char *path)
{
	char line[LINE_MAX_BYTES];
	FILE *f = fopen(path, "re");
	bool more = false; /* of a line whose comment goes on */
	int err = 0;

	if (f == NULL)
		return vb_fail(-EINVAL, "the file of servers %s: %s", path, strerror(errno));
	while (err == 0 && fgets(line, sizeof(line), f) != NULL) {
		bool ends = strchr(line, '\n') != NULL || feof(f), was = more;
		size_t n = strcspn(line, "#\r\n");
		char *begin = line, *end;

		more = !ends;
		if (was)
			continue;
		if (!ends && line[n] == '\0') {
			err = vb_fail(-EINVAL,
				      "the file of servers %s has a line that is longer than any "
				      "address",
				      path);
			break;
		}
		line[n] = '\0';
		while (isspace((unsigned char)*begin))
			begin++;
		end = begin + strlen(begin);
		while (end > begin && isspace((unsigned char)end[-1]))
			end--;
		if (end > begin)
			err = add_server(s, begin, (size_t)(end - begin));
	}
	if (err == 0 && ferror(f))
		err = vb_fail(-EIO, "the file of servers %s cannot be read", path);
	fclose(f);
	return err;
}

static int read_servers(struct tcp_servers *s, const char *text)
{
	const char *names = text;
	int err = 0;

	if (strchr(text, '/') != NULL)
		err = read_file(s, text);
	else
		for (const char *end; err == 0 && *text != '\0';
		     text = *end != '\0' ? end + 1 : end) {
			end = text + strcspn(text, "+");
			err = add_server(s, text, (size_t)(end - text));
		}
	if (err == 0 && s->n == 0)
		err = vb_fail(-EINVAL, "no server is named");
	if (err == 0 && s->found == 0)
		err = vb_fail(-EINVAL, "no server's name of %s stands for an address", names);
	return err;
}

static int read_key(struct tcp_servers *s, const char *path)
{
	struct vb_cluster_key key;
	int err;

	_Static_assert(sizeof(key.bytes) == VB_SEAL_KEY, "a key is a key");
	if (path == NULL)
		return vb_fail(-EINVAL,
			       "an elastic cluster needs a key file, the same for all: option "
			       "key (head -c 32 /dev/urandom >FILE; chmod 600 FILE)");
	err = vb_cluster_key_make(&key, path);
	/* Not the secret of a run that begins together, whichever file that is masked with. */
	if (err == 0 &&
	    crypto_kdf_derive_from_key(s->key, sizeof(s->key), 1, "vb_elas1", key.bytes) != 0)
		err = -EINVAL;
	sodium_memzero(&key, sizeof(key));
	return err;
}

static int session(const struct tcp_servers *s, uint64_t *out)
{
	uint8_t some[crypto_kdf_BYTES_MIN];

	if (crypto_kdf_derive_from_key(some, sizeof(some), 2, "vb_elas1", s->key) != 0)
		return -EINVAL;
	memcpy(out, some, sizeof(*out));
	return 0;
}

static int check(const struct vb_fabric_params *p, const struct tcp_options *o,
		 const struct tcp_servers *s)
{
	if (p->cluster != NULL)
		return vb_fail(-EINVAL,
			       "the option servers is for processes without a cluster that "
			       "they begin together");
	if (o->serve > s->n)
		return vb_fail(-EINVAL, "serve=%llu, of %u servers", (unsigned long long)o->serve,
			       s->n);
	if (o->serve != 0 && o->bind == NULL && s->at[o->serve - 1].len == 0)
		return vb_fail(-EINVAL,
			       "serve=%llu: that server's name stands for no address where this "
			       "process could listen (option bind names one)",
			       (unsigned long long)o->serve);
	if (o->serve != 0 && o->settle_ns == 0 && o->fresh == NULL)
		return vb_fail(-EINVAL,
			       "settle=0: a server that does not wait has to know that none was "
			       "there before; name a file that it makes (option fresh), or let it "
			       "wait");
	if (o->serve == 0 && o->state != NULL)
		return vb_fail(-EINVAL, "the option state is a server's: a client has none");
	if (o->serve != 0 && p->nodes < s->n)
		return vb_fail(-EINVAL, "%u nodes for %u servers: each needs one", p->nodes, s->n);
	return 0;
}

int tcp_open_elastic(const struct vb_fabric_params *p, const struct tcp_options *o,
		     const struct vb_fabric_ops *ops, const struct net_transport *t,
		     struct vb_fabric **out)
{
	uint8_t text[TCP_SERVERS_MAX][TCP_ADDRESS];
	void *data[TCP_SERVERS_MAX];
	size_t bytes[TCP_SERVERS_MAX];
	struct vb_cluster_parts addresses = {.data = data, .bytes = bytes};
	struct tcp_servers *servers = calloc(1, sizeof(*servers));
	struct tcp_options mine = *o;
	char name[TCP_NAME_MAX + 10] = "";
	struct net_elastic_params e = {
		.clients = (uint32_t)o->clients,
		.linger_ns = o->linger_ns,
		.patience_ns = o->patience_ns,
		.settle_ns = o->settle_ns,
		.named = o->servers,
		.state = o->state,
		.self = name,
		.addresses = &addresses,
	};
	int err;

	if (servers == NULL || sodium_init() < 0) {
		free(servers);
		return vb_fail(-ENOMEM, "no memory for a list of servers");
	}
	err = read_servers(servers, o->servers);
	if (err == 0)
		err = check(p, o, servers);
	if (err == 0)
		err = read_key(servers, o->key);
	if (err == 0)
		err = session(servers, &e.session);
	for (uint32_t i = 0; i < servers->n; i++) {
		tcp_address_put(text[i], &servers->at[i]);
		data[i] = text[i];
		bytes[i] = TCP_ADDRESS;
	}
	addresses.n = e.servers = servers->n;
	e.rank = o->serve != 0 ? (uint32_t)o->serve - 1 : servers->n;
	mine.list = servers;
	if (err == 0 && o->serve != 0)
		snprintf(name, sizeof(name), "%s:%s", servers->name[e.rank].host,
			 servers->name[e.rank].port);
	if (err == 0)
		err = net_open_elastic(p, &mine, ops, t, &e, out);
	sodium_memzero(servers->key, sizeof(servers->key));
	free(servers);
	return err;
}
