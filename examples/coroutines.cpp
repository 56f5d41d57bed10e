/* SPDX-License-Identifier: Apache-2.0 */
/*
 * C++20: one thread serves a hundred sessions, each a coroutine that awaits its locks.  examples/epoll.c
 * is the same with callbacks, in a thread that waits in epoll.
 */
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <verbena/verbena.hpp>

namespace
{

const int sessions = 100, rounds = 3;
const uint64_t locks = 10;
long held_now[locks], served;

void must(int err, const char *what)
{
	if (err == 0)
		return;
	std::fprintf(stderr, "%s: %s\n", what, vb_strerror(err));
	std::exit(1);
}

verbena::job session(verbena::ring &ring, vb_lock_client *client, uint64_t lock)
{
	for (int i = 0; i < rounds; i++) {
		verbena::hold held =
			co_await ring.acquire(client, lock, VB_EXCLUSIVE, VB_FOREVER_NS);

		must(held.error(), "acquire");
		if (held_now[lock]++ != 0)
			std::abort();
		/* Others run meanwhile, as they would while this one awaits a disk or a peer. */
		must(co_await ring.call([] { return vb_poll(), 0; }), "work");
		held_now[lock]--;
		must(co_await ring.release(held), "release");
	}
	served++;
}

} // namespace

int main()
{
	vb_fabric_params where = {};
	vb_lock_space_params what = {};
	std::vector<vb_lock_client *> clients(sessions);
	verbena::ring ring;
	vb_fabric *fabric;
	vb_lock_space *space;

	where.fabric = "shm";
	what.lock = "mcs";
	what.locks = locks;
	must(vb_fabric_open(&where, &fabric), "open the fabric");
	must(vb_lock_space_open(fabric, &what, &space), "open the lock space");
	must(ring.open(), "open the ring");
	for (vb_lock_client *&client : clients)
		must(vb_lock_client_open(space, 0, &client), "open a client");
	for (int i = 0; i < sessions; i++)
		session(ring, clients[i], i % locks);
	must(ring.run(), "run");
	for (vb_lock_client *client : clients)
		vb_lock_client_close(client);
	must(ring.close(), "close the ring");
	must(vb_lock_space_close(space), "close the lock space");
	must(vb_fabric_close(fabric), "close the fabric");
	std::printf("served %ld of %d\n", served, sessions);
	return served != sessions;
}
