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

#include <verbena/verbena.hpp>

namespace
{

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
		verbena::hold held(me, 7, VB_EXCLUSIVE, VB_FOREVER_NS);

		must(held.error(), "acquire");
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
