/* SPDX-License-Identifier: Apache-2.0 */
/* See lib.h. */
#define VB_LOG_ROOM "verbs"
#include "fabric/verbs/lib.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "base/log.h"

#if !VB_HAVE_IBVERBS

const char *verbs_absent(void)
{
	return "built without the headers of libibverbs (Debian: libibverbs-dev)";
}

#else

static struct verbs_lib the_lib;
static const struct verbs_lib *in_use; /* a test's */
static int fork_error;
static char why_not[256];
static pthread_once_t lib_once = PTHREAD_ONCE_INIT;

static const struct {
	const char *symbol;
	size_t at;
} lib_calls[] = {
#define VERBS_ENTRY(ret, name, args) {"ibv_" #name, offsetof(struct verbs_lib, name)},
	VERBS_CALLS(VERBS_ENTRY)
#undef VERBS_ENTRY
		{"_ibv_query_gid_table", offsetof(struct verbs_lib, query_gid_table)},
};

static void lib_load(void)
{
	void *so = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);

	if (so == NULL) {
		snprintf(why_not, sizeof(why_not),
			 "libibverbs cannot be loaded: %s (Debian: libibverbs1, ibverbs-providers)",
			 dlerror());
		return;
	}
	for (size_t i = 0; i < VB_ARRAY_SIZE(lib_calls); i++) {
		void *entry = dlsym(so, lib_calls[i].symbol);

		if (entry == NULL) {
			snprintf(why_not, sizeof(why_not),
				 "libibverbs lacks %s: rdma-core 32 or newer is needed",
				 lib_calls[i].symbol);
			return;
		}
		memcpy((char *)&the_lib + lib_calls[i].at, &entry, sizeof(entry));
	}
	fork_error = the_lib.fork_init();
}

int verbs_lib_fork_error(void)
{
	return fork_error;
}

const char *verbs_pin_hint(int err)
{
	static _Thread_local char text[256];
	struct rlimit lock;

	if (err != ENOMEM)
		return "";
	if (getrlimit(RLIMIT_MEMLOCK, &lock) != 0 || lock.rlim_cur == RLIM_INFINITY)
		return " (no limit on pinned memory: is there enough of it?)";
	snprintf(text, sizeof(text),
		 " (this process may pin %llu KiB: `ulimit -l unlimited`, for good memlock in "
		 "/etc/security/limits.conf, in a service LimitMEMLOCK=infinity, in a container "
		 "--ulimit memlock=-1)",
		 (unsigned long long)lock.rlim_cur / 1024);
	return text;
}

void verbs_lib_use(const struct verbs_lib *lib)
{
	in_use = lib;
	if (lib != NULL)
		fork_error = lib->fork_init();
}

const struct verbs_lib *verbs_lib(const char **why)
{
	if (in_use != NULL) {
		*why = NULL;
		return in_use;
	}
	pthread_once(&lib_once, lib_load);
	*why = why_not[0] != '\0' ? why_not : NULL;
	return *why == NULL ? &the_lib : NULL;
}

const char *verbs_absent(void)
{
	const char *why;
	const struct verbs_lib *lib = verbs_lib(&why);
	struct ibv_device **list;
	int n = 0;

	if (lib == NULL)
		return why;
	list = lib->get_device_list(&n);
	if (list == NULL)
		return errno == ENOSYS ? "this kernel has no RDMA (no ib_uverbs module)"
				       : "the list of RDMA devices cannot be read";
	lib->free_device_list(list);
	return n > 0 ? NULL
		     : "no RDMA device; Soft-RoCE makes one: rdma link add rxe0 type rxe netdev IF";
}

int verbs_lib_query_port(const struct verbs_lib *lib, struct ibv_context *ctx, uint8_t port,
			 struct ibv_port_attr *out)
{
	struct verbs_context *v = verbs_get_ctx_op(ctx, query_port);

	memset(out, 0, sizeof(*out));
	if (v != NULL)
		return v->query_port(ctx, port, out, sizeof(*out));
	return lib->query_port(ctx, port, (struct _compat_ibv_port_attr *)out);
}

/* ---- librdmacm: whose address is it? ---- */

#if !VB_HAVE_RDMACM

int verbs_lib_owner_of(const char *addr, char *device, size_t size, uint8_t *port)
{
	return vb_fail(-EOPNOTSUPP,
		       "option addr=%s: built without the headers of librdmacm; use device=", addr);
}

#else

struct cm_lib {
	struct rdma_event_channel *(*create_event_channel)(void);
	void (*destroy_event_channel)(struct rdma_event_channel *);
	int (*create_id)(struct rdma_event_channel *, struct rdma_cm_id **, void *,
			 enum rdma_port_space);
	int (*destroy_id)(struct rdma_cm_id *);
	int (*bind_addr)(struct rdma_cm_id *, struct sockaddr *);
};

static int cm_load(struct cm_lib *cm)
{
	void *so = dlopen("librdmacm.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	static const char *const names[] = {"rdma_create_event_channel",
					    "rdma_destroy_event_channel", "rdma_create_id",
					    "rdma_destroy_id", "rdma_bind_addr"};
	void *entry[VB_ARRAY_SIZE(names)];

	if (so == NULL)
		return vb_fail(-ENODEV,
			       "option addr: librdmacm cannot be loaded: %s (Debian: librdmacm1); "
			       "or use device=",
			       dlerror());
	for (size_t i = 0; i < VB_ARRAY_SIZE(names); i++) {
		entry[i] = dlsym(so, names[i]);
		if (entry[i] == NULL)
			return vb_fail(-ENODEV,
				       "option addr: librdmacm lacks %s; use device=", names[i]);
	}
	_Static_assert(sizeof(*cm) == sizeof(entry), "the table and the names agree");
	memcpy(cm, entry, sizeof(*cm));
	return 0;
}

static int parse_ip(const char *addr, struct sockaddr_storage *out)
{
	struct sockaddr_in *v4 = (struct sockaddr_in *)out;
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)out;

	memset(out, 0, sizeof(*out));
	if (inet_pton(AF_INET, addr, &v4->sin_addr) == 1)
		out->ss_family = AF_INET;
	else if (inet_pton(AF_INET6, addr, &v6->sin6_addr) == 1)
		out->ss_family = AF_INET6;
	else
		return vb_fail(-EINVAL, "option addr=%s is not an IP address", addr);
	return 0;
}

static int cm_owner_of(const struct cm_lib *cm, struct rdma_cm_id *id, const char *addr,
		       char *device, size_t size, uint8_t *port)
{
	struct sockaddr_storage sa;
	const char *why;
	const struct verbs_lib *lib = verbs_lib(&why);
	int err = parse_ip(addr, &sa);

	if (err != 0)
		return err;
	if (lib == NULL)
		return vb_fail(-ENODEV, "%s", why);
	if (cm->bind_addr(id, (struct sockaddr *)&sa) != 0)
		return vb_fail(-ENODEV,
			       "option addr=%s: no RDMA device has this address (%s); `verbena "
			       "doctor` lists the devices",
			       addr, strerror(errno));
	if (id->verbs == NULL)
		return vb_fail(-ENODEV,
			       "option addr=%s belongs to no single RDMA device (loopback or a "
			       "wildcard?); use device=",
			       addr);
	snprintf(device, size, "%s", lib->get_device_name(id->verbs->device));
	*port = id->port_num;
	return 0;
}

int verbs_lib_owner_of(const char *addr, char *device, size_t size, uint8_t *port)
{
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;
	struct cm_lib cm;
	int err = cm_load(&cm);

	if (err != 0)
		return err;
	channel = cm.create_event_channel();
	if (channel == NULL)
		return vb_fail(-ENODEV,
			       "option addr: no RDMA connection manager: %s (modprobe rdma_ucm)",
			       strerror(errno));
	if (cm.create_id(channel, &id, NULL, RDMA_PS_TCP) != 0) {
		err = vb_fail(-ENODEV, "option addr: %s", strerror(errno));
	} else {
		err = cm_owner_of(&cm, id, addr, device, size, port);
		cm.destroy_id(id);
	}
	cm.destroy_event_channel(channel);
	return err;
}

#endif
#endif
