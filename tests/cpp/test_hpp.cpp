/* SPDX-License-Identifier: Apache-2.0 */
/* verbena.hpp: guards, and in C++20 what coroutines await.  Each line that fails says which. */
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <type_traits>

#include <poll.h>

#include <verbena/verbena.hpp>

#define CHECK(cond)                                                                                \
	do {                                                                                       \
		if (!(cond)) {                                                                     \
			std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond);            \
			std::exit(1);                                                              \
		}                                                                                  \
	} while (0)

namespace
{

const uint64_t ms = 1000000, patience_ns = 60000 * ms;
const int n_clients = 8;

vb_fabric *fabric;
vb_lock_space *space;
vb_lock_server *server;
vb_lock_client *client[n_clients];

void open_world(const char *lock)
{
	vb_fabric_params where = {};
	vb_lock_space_params what = {};

	where.fabric = "shm";
	what.lock = lock;
	what.locks = 10;
	what.lease_ns = patience_ns;
	CHECK(vb_fabric_open(&where, &fabric) == 0);
	CHECK(vb_lock_space_open(fabric, &what, &space) == 0);
	CHECK(vb_lock_server_thread_start(space, 0, &server) == 0);
	for (int i = 0; i < n_clients; i++)
		CHECK(vb_lock_client_open(space, 0, &client[i]) == 0);
}

void close_world()
{
	for (int i = 0; i < n_clients; i++)
		vb_lock_client_close(client[i]);
	vb_lock_server_stop(server);
	CHECK(vb_lock_space_close(space) == 0);
	CHECK(vb_fabric_close(fabric) == 0);
}

bool is_free(uint64_t lock)
{
	vb_grant g = {};

	if (vb_lock_try(client[n_clients - 1], lock, VB_EXCLUSIVE, &g) != 0)
		return false;
	CHECK(vb_lock_release(client[n_clients - 1], &g) == 0);
	return true;
}

void test_guards()
{
	static_assert(!std::is_copy_constructible<verbena::hold>::value &&
			      !std::is_copy_assignable<verbena::hold>::value &&
			      std::is_nothrow_move_constructible<verbena::hold>::value &&
			      std::is_nothrow_move_assignable<verbena::hold>::value,
		      "moved and not copied");
	verbena::hold none;
	vb_grant g = {};

	CHECK(!none && none.error() == -EINVAL && !none.valid() && none.release() == -EINVAL);
	{
		verbena::hold held(client[0], 3, VB_EXCLUSIVE, patience_ns);

		CHECK(held && held.error() == 0 && held.valid() && held.grant().lock == 3);
		CHECK(!is_free(3));

		verbena::hold late(client[1], 3, VB_EXCLUSIVE, ms);

		CHECK(!late && late.error() == -ETIMEDOUT && late.release() == -ETIMEDOUT);

		verbena::hold moved(std::move(held));

		CHECK(moved.valid() && !held && held.release() == -EINVAL && !is_free(3));

		verbena::hold other(client[0], 4, VB_EXCLUSIVE, patience_ns);

		other = std::move(moved);
		CHECK(other.valid() && !moved && is_free(4) && !is_free(3));
		CHECK(other.release() == 0 && !other && other.release() == -EINVAL && is_free(3));
		other = verbena::hold(client[0], 4, VB_EXCLUSIVE, patience_ns);
		CHECK(!is_free(4));
	}
	CHECK(is_free(3) && is_free(4));
	CHECK(vb_lock_acquire(client[0], 3, VB_EXCLUSIVE, patience_ns, &g) == 0);
	{
		verbena::hold taken(client[0], g, 0);

		CHECK(taken.valid());
	}
	CHECK(is_free(3));
}

/* It stays its thread's. */
void test_of_another_thread()
{
	verbena::hold held(client[0], 3, VB_EXCLUSIVE, patience_ns);

	vb_log_levels("off");
	std::thread([&held] {
		CHECK(held.release() == -VB_EFOREIGN && held && !held.valid());
	}).join();
	vb_log_levels("warn");
	CHECK(held.valid() && !is_free(3));
	CHECK(held.release() == 0 && is_free(3));
}

#ifdef VERBENA_COROUTINES

int inside, done;

verbena::job takes(verbena::ring &ring, vb_lock_client *me, bool awaits)
{
	for (int i = 0; i < 20; i++) {
		verbena::hold held = co_await ring.acquire(me, 5, VB_EXCLUSIVE, patience_ns);

		CHECK(held && held.valid() && inside++ == 0);
		CHECK(co_await ring.call([] { return 0; }) == 0);
		inside--;
		if (awaits) {
			CHECK(co_await ring.release(held) == 0);
			CHECK(!held && co_await ring.release(held) == -EINVAL);
		}
	}
	done++;
}

void test_contended(verbena::ring &ring)
{
	done = 0;
	for (int i = 0; i < 6; i++)
		takes(ring, client[i], i % 2 == 0);
	CHECK(ring.run() == 0);
	CHECK(done == 6 && inside == 0 && is_free(5));
}

verbena::job too_late(verbena::ring &ring)
{
	verbena::hold held = co_await ring.acquire(client[1], 5, VB_EXCLUSIVE, ms);

	CHECK(!held && held.error() == -ETIMEDOUT);
	done++;
}

verbena::job cancelled(verbena::ring &ring, uint64_t *id)
{
	verbena::hold held = co_await ring.acquire(client[2], 5, VB_EXCLUSIVE, VB_FOREVER_NS, id);

	CHECK(!held && held.error() == -ECANCELED);
	done++;
}

verbena::job calls(verbena::ring &ring)
{
	int seen = 0;

	CHECK(co_await ring.call([&seen] { return seen = -7; }) == -7);
	CHECK(seen == -7);
	done++;
}

void test_results(verbena::ring &ring)
{
	verbena::hold held(client[0], 5, VB_EXCLUSIVE, patience_ns);
	uint64_t id;

	done = 0;
	too_late(ring);
	cancelled(ring, &id);
	calls(ring);
	CHECK(ring.cancel(id) == 0);
	CHECK(ring.run() == 0);
	CHECK(done == 3);
}

verbena::job keeps(verbena::ring &ring, verbena::hold &held, uint64_t *id, int *result)
{
	*result = 1;
	*result = co_await ring.keep(held, id);
	done++;
}

void test_kept(verbena::ring &ring)
{
	verbena::hold held(client[0], 5, VB_EXCLUSIVE, patience_ns), none;
	uint64_t id;
	int result;

	done = 0;
	keeps(ring, none, &id, &result);
	CHECK(done == 1 && result == -EINVAL);
	keeps(ring, held, &id, &result);
	CHECK(result == 1 && held.valid());
	vb_log_levels("off");
	CHECK(held.release() == -EBUSY && held);
	CHECK(ring.close() == -EBUSY);
	vb_log_levels("warn");
	CHECK(ring.cancel(id) == 0);
	CHECK(ring.run() == 0);
	CHECK(done == 2 && result == -ECANCELED && held.release() == 0);
}

#ifdef __cpp_exceptions

/* Its exceptions go to who has resumed it. */
struct thrower {
	struct promise_type {
		thrower get_return_object()
		{
			return {std::coroutine_handle<promise_type>::from_promise(*this)};
		}
		std::suspend_never initial_suspend() noexcept
		{
			return {};
		}
		std::suspend_always final_suspend() noexcept
		{
			return {};
		}
		void return_void()
		{
		}
		void unhandled_exception()
		{
			throw;
		}
	};
	std::coroutine_handle<> me;
};

thrower throws(verbena::ring &ring, vb_lock_client *who, uint64_t *id)
{
	verbena::hold held = co_await ring.acquire(who, 5, VB_EXCLUSIVE, VB_FOREVER_NS, id);

	done++;
	throw held.error();
}

/* What has ended beside it is resumed all the same. */
void test_exceptions(verbena::ring &ring)
{
	verbena::hold held(client[0], 5, VB_EXCLUSIVE, patience_ns);
	thrower all[3] = {};
	uint64_t id[3];
	int caught = 0;

	done = 0;
	for (int i = 0; i < 3; i++)
		all[i] = throws(ring, client[1 + i], &id[i]);
	for (int i = 0; i < 3; i++)
		CHECK(ring.cancel(id[i]) == 0);
	for (int i = 0; i < 3; i++) {
		try {
			CHECK(ring.run() == 0);
		} catch (int err) {
			CHECK(err == -ECANCELED && ++caught == done);
		}
	}
	CHECK(caught == 3 && ring.run() == 0);
	for (int i = 0; i < 3; i++)
		all[i].me.destroy();
}

#endif

/* As a thread does that sleeps elsewhere. */
void test_elsewhere(verbena::ring &ring)
{
	struct pollfd fd = {};

	fd.fd = ring.fd();
	fd.events = POLLIN;
	done = 0;
	for (int i = 0; i < 4; i++)
		takes(ring, client[i], true);
	while (done < 4) {
		if (ring.arm() == 0)
			CHECK(poll(&fd, 1, int(patience_ns / ms)) == 1);
		CHECK(ring.resume() >= 0);
	}
}

void test_coroutines()
{
	verbena::ring ring, never;

	CHECK(ring.open() == 0);
	CHECK(ring.open() == -EBUSY);
	test_contended(ring);
	test_results(ring);
	test_kept(ring);
#ifdef __cpp_exceptions
	test_exceptions(ring);
#endif
	test_elsewhere(ring);
	CHECK(ring.run() == 0);
	CHECK(ring.close() == 0);
}

#endif

} // namespace

int main()
{
	open_world("table");
	test_guards();
	test_of_another_thread();
#ifdef VERBENA_COROUTINES
	test_coroutines();
	std::puts("guards and coroutines");
#else
	std::puts("guards");
#endif
	close_world();
	return 0;
}
