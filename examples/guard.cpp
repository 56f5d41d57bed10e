/* SPDX-License-Identifier: Apache-2.0 */
/*
 * C++ (14 or newer): a lock that is given back at the end of a block.  Two threads count under it, each with a
 * client of its own.
 *
 * The headers are C, with no exceptions and no compound literals in C++: a struct of parameters begins as {},
 * which is all defaults, and gets what is to be different.
 */
#include <cstdio>
#include <cstdlib>
#include <thread>

#include <verbena/lock.h>

namespace
{

class guard
{
public:
	guard(vb_lock_client *client, uint64_t lock, vb_mode mode, uint64_t timeout_ns)
		: client_(client), err_(vb_lock_acquire(client, lock, mode, timeout_ns, &grant_))
	{
	}
	~guard()
	{
		release();
	}
	guard(const guard &) = delete;
	guard &operator=(const guard &) = delete;

	/* 0: the lock was granted; else why not. */
	int err() const
	{
		return err_;
	}
	/* Whether it is ours now; and the token for what it guards (fencing.c). */
	bool valid() const
	{
		return client_ != nullptr && err_ == 0 && vb_lock_valid(client_, &grant_);
	}
	uint64_t token() const
	{
		return grant_.token;
	}
	/* Before the end of the block, for who wants to know whether the lease had run out (-VB_ELOST). */
	int release()
	{
		vb_lock_client *client = client_;

		client_ = nullptr;
		return client != nullptr && err_ == 0 ? vb_lock_release(client, &grant_) : err_;
	}

private:
	vb_lock_client *client_;
	vb_grant grant_ = {};
	int err_;
};

const long cycles = 1000;
long counter;

void must(int err, const char *what)
{
	if (err == 0)
		return;
	std::fprintf(stderr, "%s: %s\n", what, vb_strerror(err));
	std::exit(1);
}

void count(vb_lock_space *space)
{
	vb_lock_client *me;

	must(vb_lock_client_open(space, 0, &me), "open a client");
	for (long i = 0; i < cycles; i++) {
		guard held(me, 7, VB_EXCLUSIVE, VB_FOREVER_NS);

		must(held.err(), "acquire");
		counter++;
	}
	vb_lock_client_close(me);
}

} // namespace

int main()
{
	vb_fabric_params where = {};
	vb_lock_space_params what = {};
	vb_fabric *fabric;
	vb_lock_space *space;

	where.fabric = "shm";
	what.lock = "dslr";
	what.locks = 10;
	what.lease_ns = 60000000000;
	what.fencing = true;
	must(vb_fabric_open(&where, &fabric), "open the fabric");
	must(vb_lock_space_open(fabric, &what, &space), "open the lock space");
	std::thread one(count, space), other(count, space);
	one.join();
	other.join();
	must(vb_lock_space_close(space), "close the lock space");
	must(vb_fabric_close(fabric), "close the fabric");
	std::printf("counted %ld of %ld\n", counter, 2 * cycles);
	return counter != 2 * cycles;
}
