/* SPDX-License-Identifier: Apache-2.0 */
/* Fabrics and locks while calls fail; see sweep.h. */
#include <verbena/lock.h>

#include "lock/lock.h"
#include "sweep.h"

#define LOCKS    8
#define SHORT_NS 2000000ull

/* Carries on only while nothing has failed. */
#define STEP(call)                                                                                 \
	do {                                                                                       \
		if (err == 0)                                                                      \
			err = (call);                                                              \
	} while (0)

/* Closing is never refused to who has closed all that is on it. */
#define CLOSE(call) promise((call) == 0)

static int open_fabric(const char *name, const char *segment, struct vb_fabric **f)
{
	return vb_fabric_open(&(struct vb_fabric_params){.fabric = name,
							 .name = segment,
							 .nodes = 2,
							 .node_bytes = 2 << 20,
							 .endpoints = 32},
			      f);
}

/* ---- fabrics ---- */

static int only_open(const char *name)
{
	struct vb_fabric *f = NULL;
	int err = open_fabric(name, NULL, &f);

	if (err == 0)
		CLOSE(vb_fabric_close(f));
	return err;
}

/* Made, joined by who would also make it, joined by who would not, and left. */
static int segment(const char *unused)
{
	struct vb_fabric_params p = {.name = segment_name, .node_bytes = 64 << 10, .endpoints = 4};
	struct vb_fabric *f = NULL, *again = NULL;
	int err = vb_fabric_open(&p, &f);

	STEP(vb_fabric_close(f));
	p.attach_or_create = true;
	STEP(vb_fabric_open(&p, &f));
	if (err == 0) {
		p.attach_or_create = false;
		p.attach = true;
		err = vb_fabric_open(&p, &again);
		if (err == 0)
			CLOSE(vb_fabric_close(again));
		CLOSE(vb_fabric_close(f));
	}
	return err;
}

/* ---- locks ---- */

struct world {
	struct vb_fabric *f;
	struct vb_lock_space *space;
	struct vb_lock_server *server[2];
	struct vb_lock_client *a, *b;
};

static int open_world(struct world *w, const char *fabric, const char *lock, const char *options)
{
	int err = open_fabric(fabric, NULL, &w->f);

	STEP(vb_lock_space_open(w->f,
				&(struct vb_lock_space_params){.lock = lock,
							       .options = options,
							       .locks = LOCKS,
							       .servers = 2,
							       .fencing = true,
							       .visible = true,
							       .claims = 8},
				&w->space));
	for (uint16_t i = 0; i < 2; i++)
		STEP(vb_lock_server_start(w->space, i, 0, 1, &w->server[i]));
	STEP(vb_lock_client_open(w->space, 0, &w->a));
	STEP(vb_lock_client_open(w->space, 1, &w->b));
	return err;
}

static void close_world(struct world *w)
{
	vb_lock_client_close(w->a);
	vb_lock_client_close(w->b);
	for (unsigned i = 0; i < 2; i++)
		vb_lock_server_stop(w->server[i]);
	CLOSE(vb_lock_space_close(w->space));
	CLOSE(vb_fabric_close(w->f));
}

/* `b` asks while `a` holds it, gives up or not, and asks again. */
static int pass_on(struct world *w, uint64_t lock)
{
	struct vb_grant a, b;
	int err = vb_lock_acquire(w->a, lock, VB_EXCLUSIVE, patience_ns(), &a), other;

	if (err != 0)
		return err;
	other = vb_lock_acquire(w->b, lock, VB_EXCLUSIVE, SHORT_NS, &b);
	/* Two do not hold it, but when the first has lost it. */
	if (other == 0) {
		promise(!vb_lock_valid(w->a, &a));
		STEP(vb_lock_release(w->b, &b));
	} else if (other != -ETIMEDOUT && other != -EAGAIN) {
		err = other;
	}
	other = vb_lock_release(w->a, &a);
	STEP(other == -VB_ELOST ? 0 : other);
	STEP(vb_lock_acquire(w->b, lock, VB_SHARED, patience_ns(), &b));
	STEP(vb_lock_release(w->b, &b));
	return err;
}

static int locks(const char *fabric, const char *lock)
{
	struct world w = {0};
	int err = open_world(&w, fabric, lock, NULL);

	for (uint64_t i = 0; i < 2; i++)
		STEP(pass_on(&w, i));
	close_world(&w);
	return err;
}

static int on_sim(const char *lock)
{
	return locks("sim", lock);
}

static int on_shm(const char *lock)
{
	return locks("shm", lock);
}

/* ---- the lock table's file ---- */

int __real_mkdir(const char *path, mode_t mode);

static void remove_files(const char *dir)
{
	char path[96];

	for (unsigned node = 0; node < 2; node++) {
		snprintf(path, sizeof(path), "%s/locks.%u.0", dir, node);
		(void)unlink(path);
	}
	/* And there is nothing else. */
	promise(rmdir(dir) == 0);
}

/* A disk that is full or whose directory goes costs no grant: servers go on without a file. */
static int table_with_file(const char *goes)
{
	char dir[64], options[128];
	struct world w = {0};
	int err;

	snprintf(dir, sizeof(dir), "/dev/shm/dir.%s", segment_name);
	promise(__real_mkdir(dir, 0700) == 0);
	snprintf(options, sizeof(options), "persist=%s,sync=yes", dir);
	err = open_world(&w, "shm", "table", options);
	if (goes != NULL)
		remove_files(dir);
	for (uint64_t i = 0; i < 2; i++)
		STEP(pass_on(&w, i));
	close_world(&w);
	if (goes == NULL)
		remove_files(dir);
	return err;
}

int main(int argc, char **argv)
{
	static struct scenario s[128] = {
		{"fabric sim", only_open, "sim"},
		{"fabric shm", only_open, "shm"},
		{"segment", segment, NULL},
		{"table with a file", table_with_file, NULL},
		{"table, its directory goes", table_with_file, "goes"},
	};
	static char names[128][48];
	size_t n = 5;

	for (const struct vb_lock_ops *const *l = vb_locks; *l != NULL; l++)
		for (unsigned shm = 0; shm < 2; shm++) {
			snprintf(names[n], sizeof(names[n]), "%s on %s", (*l)->name,
				 shm ? "shm" : "sim");
			s[n] = (struct scenario){names[n], shm ? on_shm : on_sim, (*l)->name};
			n++;
		}
	return sweep_all(s, n, argc > 1 ? argv[1] : NULL);
}
