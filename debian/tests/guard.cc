/* SPDX-License-Identifier: Apache-2.0 */
/* A lock that C++ gives back at the end of a block: two threads count, each under the lock. */
#include <cstdio>
#include <thread>

#include <verbena/lock.h>

namespace
{

class guard
{
public:
	guard(vb_lock_client *client, uint64_t lock)
		: client_(client), err_(vb_lock_acquire(client, lock, VB_EXCLUSIVE, VB_FOREVER_NS, &grant_))
	{
	}
	~guard()
	{
		if (err_ == 0)
			vb_lock_release(client_, &grant_);
	}
	guard(const guard &) = delete;
	guard &operator=(const guard &) = delete;
	int err() const
	{
		return err_;
	}

private:
	vb_lock_client *client_;
	vb_grant grant_;
	int err_;
};

const long cycles = 1000;
long counter;

void count(vb_lock_space *space)
{
	vb_lock_client *me;

	if (vb_lock_client_open(space, 0, &me) != 0)
		return;
	for (long i = 0; i < cycles; i++) {
		guard held(me, 7);

		if (held.err() == 0)
			counter++;
	}
	vb_lock_client_close(me);
}

} // namespace

int main()
{
	vb_fabric_params where = vb_fabric_params();
	vb_lock_space_params what = vb_lock_space_params();
	vb_fabric *fabric;
	vb_lock_space *space;
	int err;

	where.fabric = "shm";
	what.lock = "mcs";
	what.locks = 10;
	err = vb_fabric_open(&where, &fabric);
	if (err == 0)
		err = vb_lock_space_open(fabric, &what, &space);
	if (err != 0) {
		std::fprintf(stderr, "%s\n", vb_strerror(err));
		return 1;
	}
	std::thread one(count, space), other(count, space);
	one.join();
	other.join();
	vb_lock_space_close(space);
	vb_fabric_close(fabric);
	std::printf("counted %ld of %ld\n", counter, 2 * cycles);
	return counter != 2 * cycles;
}
