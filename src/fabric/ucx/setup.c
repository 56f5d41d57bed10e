/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The UCX context and worker of a process: which transports and interfaces, and how soon a dead
 * link is noticed.  A UCX_* variable of the user's goes before each of these settings.
 */
#define VB_LOG_ROOM "ucx"
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/log.h"
#include "fabric/ucx/inner.h"

#define LINK_NS       5000000000ull /* how long the interface may be down while a cluster opens */
#define LINK_PAUSE_US 20000

static int fail_status(const struct ucx_via *u, const char *what, ucs_status_t status)
{
	int err = status == UCS_ERR_NO_MEMORY   ? -ENOMEM
		  : status == UCS_ERR_NO_DEVICE ? -ENODEV
						: -EIO;

	return vb_fail(err, "%s: %s (options tls=%s)", what, u->lib->ucs_status_string(status),
		       u->o.tls);
}

/* ---- which interface ---- */

static bool same_address(const struct sockaddr *a, int family, const void *ip)
{
	if (a == NULL || a->sa_family != family)
		return false;
	if (family == AF_INET)
		return memcmp(&((const struct sockaddr_in *)a)->sin_addr, ip,
			      sizeof(struct in_addr)) == 0;
	return memcmp(&((const struct sockaddr_in6 *)a)->sin6_addr, ip, sizeof(struct in6_addr)) ==
	       0;
}

/* The interface that has the address. */
static int device_of(const char *address, char name[IF_NAMESIZE])
{
	uint8_t ip[sizeof(struct in6_addr)];
	int family = inet_pton(AF_INET, address, ip) == 1    ? AF_INET
		     : inet_pton(AF_INET6, address, ip) == 1 ? AF_INET6
							     : -1;
	struct ifaddrs *all;
	int err = -EADDRNOTAVAIL;

	if (family < 0)
		return vb_fail(-EINVAL, "'%s' is no address: name an interface (net_devices=eth0)",
			       address);
	if (getifaddrs(&all) != 0)
		return vb_fail(-errno, "the interfaces cannot be listed: %s", strerror(errno));
	for (const struct ifaddrs *a = all; a != NULL && err != 0; a = a->ifa_next) {
		if (!same_address(a->ifa_addr, family, ip))
			continue;
		snprintf(name, IF_NAMESIZE, "%s", a->ifa_name);
		err = 0;
	}
	freeifaddrs(all);
	if (err != 0)
		vb_error("no interface has the address %s: name one (net_devices=eth0)", address);
	return err;
}

/* UCX says nothing about a name that it does not find or an interface that is down, and then
 * reaches nobody.  It looks in /sys, which a network namespace has to mount for itself.  Names with
 * a port ("mlx5_0:1") are not of network interfaces. */
static int check_device(const struct ifaddrs *all, const char *name, uint64_t until_ns)
{
	const unsigned up = IFF_UP | IFF_RUNNING;
	char path[64];

	snprintf(path, sizeof(path), "/sys/class/net/%s", name);
	for (const struct ifaddrs *a = all; a != NULL; a = a->ifa_next) {
		if (strcmp(a->ifa_name, name) != 0)
			continue;
		if ((a->ifa_flags & up) != up && vb_clock_ns() < until_ns)
			return -EAGAIN;
		if ((a->ifa_flags & up) != up)
			return vb_fail(-ENETDOWN, "interface '%s' is down", name);
		if (access(path, F_OK) != 0)
			return vb_fail(-ENODEV,
				       "UCX finds no interface '%s', because there is no %s: "
				       "mount /sys anew in this network namespace",
				       name, path);
		return 0;
	}
	return vb_fail(-ENODEV, "there is no interface '%s' (option net_devices)", name);
}

static int check_devices(const char *list, uint64_t until_ns)
{
	char name[IF_NAMESIZE];
	struct ifaddrs *all;
	int err = 0;

	if (strcmp(list, "all") == 0)
		return 0;
	if (getifaddrs(&all) != 0)
		return vb_fail(-errno, "the interfaces cannot be listed: %s", strerror(errno));
	while (*list != '\0' && err == 0) {
		size_t n = strcspn(list, ","), fits = n < IF_NAMESIZE ? n : IF_NAMESIZE - 1;

		memcpy(name, list, fits);
		name[fits] = '\0';
		if (memchr(list, ':', n) == NULL)
			err = check_device(all, name, until_ns);
		list += n + (list[n] == ',');
	}
	freeifaddrs(all);
	return err;
}

/* In a cluster a link that is down may be up again in a moment: the others are there already. */
static int await_devices(const struct ucx_via *u)
{
	int err;

	while ((err = check_devices(u->devices, u->setup_until_ns)) == -EAGAIN)
		usleep(LINK_PAUSE_US);
	return err;
}

/* How often a link of this machine has come or gone since it was started. */
static uint64_t link_changes(void)
{
	struct if_nameindex *all = if_nameindex();
	uint64_t sum = 0;

	for (const struct if_nameindex *i = all; i != NULL && i->if_name != NULL; i++) {
		char path[64];
		unsigned long n;
		FILE *f;

		snprintf(path, sizeof(path), "/sys/class/net/%s/carrier_changes", i->if_name);
		f = fopen(path, "re");
		if (f == NULL)
			continue;
		if (fscanf(f, "%lu", &n) == 1)
			sum += n;
		fclose(f);
	}
	if (all != NULL)
		if_freenameindex(all);
	return sum;
}

/* A worker leaves an interface that is down just then out of its address, for ever and without a
 * word, and nobody reaches it.  -EAGAIN: that may have happened. */
static int was_up(const struct ucx_via *u, uint64_t changes)
{
	if (u->devices == NULL || vb_clock_ns() >= u->setup_until_ns)
		return 0;
	return link_changes() != changes ? -EAGAIN : check_devices(u->devices, u->setup_until_ns);
}

/* ---- configuration ---- */

/* What the user has set in the environment goes before. */
static bool theirs(const char *name)
{
	char variable[64];
	const char *value;

	snprintf(variable, sizeof(variable), "UCX_%s", name);
	value = getenv(variable);
	if (value != NULL)
		vb_debug("%s=%s from the environment is left alone", variable, value);
	return value != NULL;
}

static int set(struct ucx_via *u, ucp_config_t *c, const char *name, const char *value)
{
	ucs_status_t status;

	if (theirs(name))
		return 0;
	status = u->lib->ucp_config_modify(c, name, value);
	/* UCX 1.13 knows a network interface's own settings without the "TCP_" of their variables,
	 * later versions with it; each ignores a name that nothing asks for. */
	if (status == UCS_OK && strncmp(name, "TCP_", 4) == 0)
		status = u->lib->ucp_config_modify(c, name + 4, value);
	return status == UCS_OK ? 0 : fail_status(u, name, status);
}

static int configure(struct ucx_via *u, ucp_config_t *c)
{
	const struct vb_cluster *cluster = u->w->f->cluster;
	/* Whole seconds are all that TCP has. */
	unsigned seconds = (unsigned)((u->w->o.silence_ns + 999999999) / 1000000000);
	const char *devices = u->o.net_devices != NULL ? u->o.net_devices : u->device;
	char idle[32];
	int err = 0;

	if (devices == u->device)
		err = device_of(cluster != NULL ? vb_cluster_bind(cluster) : "127.0.0.1",
				u->device);
	if (err == 0 && !theirs("NET_DEVICES") && !theirs("TLS") && strstr(u->o.tls, "tcp"))
		u->devices = devices;
	if (err == 0 && u->devices != NULL)
		err = await_devices(u);
	if (err == 0) {
		const char *const settings[][2] = {
			{"TLS", u->o.tls},
			{"NET_DEVICES", devices},
			{"KEEPALIVE_INTERVAL", idle},
			{"TCP_KEEPIDLE", idle},
			{"TCP_KEEPINTVL", "1s"},
			{"TCP_KEEPCNT", "2"},
			/* A connect() to a host behind a cut link must not stop this one. */
			{"TCP_CONN_NB", "y"},
		};

		snprintf(idle, sizeof(idle), "%us", seconds);
		for (unsigned i = 0; i < VB_ARRAY_SIZE(settings) && err == 0; i++)
			err = set(u, c, settings[i][0], settings[i][1]);
	}
	return err;
}

static int open_context(struct ucx_via *u)
{
	ucp_params_t p = {
		.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS,
		.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP,
		.estimated_num_eps = u->w->f->hosts,
	};
	ucp_config_t *config;
	ucs_status_t status = u->lib->ucp_config_read(NULL, NULL, &config);
	int err;

	if (status != UCS_OK)
		return fail_status(u, "UCX's configuration cannot be read", status);
	err = configure(u, config);
	if (err == 0) {
		status = u->lib->ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &p, config,
						  &u->context);
		if (status != UCS_OK)
			err = fail_status(u, "UCX does not start", status);
	}
	u->lib->ucp_config_release(config);
	return err;
}

static int open_worker(struct ucx_via *u)
{
	ucp_worker_params_t p = {
		.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
		.thread_mode = UCS_THREAD_MODE_SERIALIZED,
	};
	ucp_am_handler_param_t handler = {
		.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
			      UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG,
		.id = UCX_AM_ID,
		.flags = UCP_AM_FLAG_WHOLE_MSG,
		.cb = ucx_came,
		.arg = u,
	};
	uint64_t changes = link_changes();
	ucs_status_t status = u->lib->ucp_worker_create(u->context, &p, &u->worker);

	if (status == UCS_OK)
		status = u->lib->ucp_worker_set_am_recv_handler(u->worker, &handler);
	if (status == UCS_OK)
		status = u->lib->ucp_worker_get_address(u->worker, &u->address, &u->address_bytes);
	if (status == UCS_OK)
		status = u->lib->ucp_worker_get_efd(u->worker, &u->worker_fd);
	if (status == UCS_ERR_NO_DEVICE && vb_clock_ns() < u->setup_until_ns)
		return -EAGAIN;
	return status == UCS_OK ? was_up(u, changes) : fail_status(u, "no UCX worker", status);
}

/* An interface that went down after UCX had found it. */
static void begin_again(struct ucx_via *u)
{
	if (u->address != NULL)
		u->lib->ucp_worker_release_address(u->worker, u->address);
	if (u->worker != NULL)
		u->lib->ucp_worker_destroy(u->worker);
	u->address = NULL;
	u->worker = NULL;
	u->lib->ucp_cleanup(u->context);
	u->context = NULL;
	usleep(LINK_PAUSE_US);
}

int ucx_setup(struct ucx_via *u)
{
	struct epoll_event e = {.events = EPOLLIN};
	int err;

	u->setup_until_ns = u->w->f->cluster != NULL ? vb_clock_ns() + LINK_NS : 0;
	while ((err = open_context(u)) == 0 && (err = open_worker(u)) == -EAGAIN)
		begin_again(u);
	if (err == 0 && epoll_ctl(u->w->f->fd, EPOLL_CTL_ADD, u->worker_fd, &e) != 0)
		err = vb_fail(-errno, "no descriptor to wait on: %s", strerror(errno));
	return err;
}

void ucx_teardown(struct ucx_via *u)
{
	if (u->address != NULL)
		u->lib->ucp_worker_release_address(u->worker, u->address);
	if (u->worker != NULL)
		u->lib->ucp_worker_destroy(u->worker);
	if (u->context != NULL)
		u->lib->ucp_cleanup(u->context);
}
