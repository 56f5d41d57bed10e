/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PMIx: how processes started by mpirun or srun learn their rank, their number and where the root
 * listens.  Everything else goes over the cluster's own connections.  The library is loaded when it
 * is asked for.  It stays loaded, and the connection to the launcher stays open until the process
 * ends: of a process that closes it and opens another, a server forgets now and then to say that
 * its fence is over (seen with 4.2), if others of the run had not closed theirs by then.
 */
#define VB_LOG_ROOM "cluster"
#include "cluster/inner.h"

#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "vb_config.h"

#if VB_HAVE_PMIX
#include <dlfcn.h>
#include <pmix.h>
#include <stdlib.h>
#include <unistd.h>

#define KEY "verbena.root"

static struct {
	pmix_status_t (*init)(pmix_proc_t *, pmix_info_t[], size_t);
	pmix_status_t (*finalize)(const pmix_info_t[], size_t);
	pmix_status_t (*put)(pmix_scope_t, const char *, pmix_value_t *);
	pmix_status_t (*commit)(void);
	pmix_status_t (*fence)(const pmix_proc_t[], size_t, const pmix_info_t[], size_t);
	pmix_status_t (*get)(const pmix_proc_t *, const char *, const pmix_info_t[], size_t,
			     pmix_value_t **);
	const char *(*error_string)(pmix_status_t);
	void *lib;
	pmix_proc_t me;
	pid_t pid;       /* the process that is connected; 0: none is */
	unsigned rounds; /* clusters that ever were: each has its own key */
} px;
static pthread_mutex_t px_lock = PTHREAD_MUTEX_INITIALIZER;

static int load(void)
{
	static const char *const names[] = {"libpmix.so.2", "libpmix.so"};
	const struct {
		const char *name;
		void *to;
	} calls[] = {
		{"PMIx_Init", &px.init},
		{"PMIx_Finalize", &px.finalize},
		{"PMIx_Put", &px.put},
		{"PMIx_Commit", &px.commit},
		{"PMIx_Fence", &px.fence},
		{"PMIx_Get", &px.get},
		{"PMIx_Error_string", &px.error_string},
	};

	for (unsigned i = 0; i < VB_ARRAY_SIZE(names) && px.lib == NULL; i++)
		px.lib = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
	if (px.lib == NULL)
		return vb_fail(-ENOENT,
			       "the launcher speaks PMIx, but libpmix cannot be loaded "
			       "(Debian: libpmix2): %s",
			       dlerror());
	for (unsigned i = 0; i < VB_ARRAY_SIZE(calls); i++) {
		void *at = dlsym(px.lib, calls[i].name);

		if (at == NULL)
			return vb_fail(-ENOENT, "libpmix has no %s", calls[i].name);
		memcpy(calls[i].to, &at, sizeof(at));
	}
	return 0;
}

/* Its own library has allocated it. */
static void value_free(pmix_value_t *v)
{
	if (v->type == PMIX_STRING)
		(free)(v->data.string);
	(free)(v);
}

static int job_size(uint32_t *hosts)
{
	pmix_proc_t all = px.me;
	pmix_value_t *v = NULL;
	pmix_status_t s;

	all.rank = PMIX_RANK_WILDCARD;
	s = px.get(&all, PMIX_JOB_SIZE, NULL, 0, &v);
	if (s != PMIX_SUCCESS)
		return vb_fail(-ENOENT,
			       "the launcher does not tell how many processes it started: %s",
			       px.error_string(s));
	*hosts = v->type == PMIX_UINT32 ? v->data.uint32 : 0;
	value_free(v);
	return 0;
}

/* At exit; mpirun calls a process that ends without it a failed one.  A child of the one that
 * connected has no connection. */
static void leave(void)
{
	if (px.pid == getpid())
		px.finalize(NULL, 0);
}

static int connect_launcher(void)
{
	pmix_status_t s;

	if (px.pid == getpid())
		return 0;
	s = px.init(&px.me, NULL, 0);
	if (s != PMIX_SUCCESS)
		return vb_fail(-ENOENT, "the launcher does not answer: PMIx_Init: %s",
			       px.error_string(s));
	if (px.pid == 0 && atexit(leave) != 0)
		vb_warn("mpirun may call this process a failed one: atexit failed");
	px.pid = getpid();
	return 0;
}

static int begin(uint32_t *rank, uint32_t *hosts)
{
	uint32_t size = 0;
	int err;

	if (getenv("PMIX_NAMESPACE") == NULL || getenv("PMIX_RANK") == NULL)
		return vb_fail(-ENOENT,
			       "no launcher: PMIX_RANK is not set; start the processes with "
			       "mpirun -n N or srun --mpi=pmix");
	err = px.error_string == NULL ? load() : 0;
	if (err == 0)
		err = connect_launcher();
	if (err != 0)
		return err;
	px.rounds++;
	err = job_size(&size);
	if (err == 0 && (size == 0 || size > VB_CLUSTER_HOSTS_MAX || px.me.rank >= size))
		err = vb_fail(-EINVAL, "the launcher started %u processes: 1 to %u are possible",
			      size, VB_CLUSTER_HOSTS_MAX);
	if (err == 0 && *hosts != 0 && *hosts != size)
		err = vb_fail(-EINVAL, "%u processes are wanted, the launcher started %u", *hosts,
			      size);
	if (err == 0) {
		*rank = px.me.rank;
		*hosts = size;
	}
	return err;
}

int cluster_pmix_begin(uint32_t *rank, uint32_t *hosts)
{
	int err;

	pthread_mutex_lock(&px_lock);
	err = begin(rank, hosts);
	pthread_mutex_unlock(&px_lock);
	return err;
}

/* Until all have come; what was put before is known to all after it. */
static int fence(void)
{
	pmix_info_t collect = {.key = PMIX_COLLECT_DATA,
			       .value = {.type = PMIX_BOOL, .data = {.flag = true}}};
	pmix_status_t s = px.fence(NULL, 0, &collect, 1);

	return s == PMIX_SUCCESS ? 0
				 : vb_fail(-VB_EPEERGONE, "the launcher's fence failed: %s",
					   px.error_string(s));
}

static void key_of_round(char *key, size_t size)
{
	snprintf(key, size, "%s.%u", KEY, px.rounds);
}

int cluster_pmix_tell(const char *address)
{
	pmix_value_t v = {.type = PMIX_STRING, .data = {.string = (char *)address}};
	char key[64];
	pmix_status_t s;

	key_of_round(key, sizeof(key));
	s = px.put(PMIX_GLOBAL, key, &v);
	if (s == PMIX_SUCCESS)
		s = px.commit();
	if (s != PMIX_SUCCESS)
		return vb_fail(-VB_EPEERGONE, "the launcher does not take the root's address: %s",
			       px.error_string(s));
	return fence();
}

int cluster_pmix_learn(char **address, uint64_t timeout_ns)
{
	pmix_info_t timeout = {
		.key = PMIX_TIMEOUT,
		.value = {.type = PMIX_INT,
			  .data = {.integer = (int)(timeout_ns / 1000000000ull % INT32_MAX) + 1}}};
	pmix_proc_t root = px.me;
	pmix_value_t *v = NULL;
	pmix_status_t s;
	char key[64];
	int err = fence();

	if (err != 0)
		return err;
	root.rank = 0;
	key_of_round(key, sizeof(key));
	s = px.get(&root, key, &timeout, 1, &v);
	if (s != PMIX_SUCCESS)
		return vb_fail(-VB_EPEERGONE, "the root's address does not come: %s",
			       px.error_string(s));
	if (v->type == PMIX_STRING && v->data.string[0] != '\0')
		*address = strdup(v->data.string);
	value_free(v);
	return *address != NULL
		       ? 0
		       : vb_fail(-VB_EPEERGONE, "the root could not listen; its log says why");
}

#else

int cluster_pmix_begin(uint32_t *rank, uint32_t *hosts)
{
	(void)rank, (void)hosts;
	return vb_fail(-ENOENT, "built without PMIx's headers (Debian: libpmix-dev): start the "
				"processes without a launcher");
}

int cluster_pmix_tell(const char *address)
{
	(void)address;
	return -ENOENT;
}

int cluster_pmix_learn(char **address, uint64_t timeout_ns)
{
	(void)address, (void)timeout_ns;
	return -ENOENT;
}

#endif
