/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Verbena in C++: locks that are given back at the end of a block (C++14), and calls that coroutines
 * await (C++20).  All of it is in this header; what it says in a word is said at length in
 * verbena/lock.h and verbena/async.h.  It throws no exceptions: errors are those of the C calls.
 *
 *	verbena::job serve(verbena::ring &ring, vb_lock_client *client)
 *	{
 *		verbena::hold held = co_await ring.acquire(client, 7, VB_EXCLUSIVE, VB_FOREVER_NS);
 *
 *		if (!held)
 *			...                                     // held.error() says why
 *		...                                             // work, also with other co_awaits
 *		int err = co_await ring.release(held);
 *	}
 *
 *	verbena::ring ring;
 *	int err = ring.open();                                  // before anything is started on it
 *	for (vb_lock_client *client : clients)
 *		serve(ring, client);
 *	ring.run();                                             // until all have ended
 *
 * examples/coroutines.cpp is a whole program, examples/guard.cpp one with threads.
 */
#ifndef VERBENA_VERBENA_HPP
#define VERBENA_VERBENA_HPP

#include <cerrno>
#include <utility>

#include <verbena/async.h>
#include <verbena/lock.h>

#if defined(__cpp_impl_coroutine) && defined(__has_include)
#if __has_include(<coroutine>)
#include <coroutine>
#include <exception>
#define VERBENA_COROUTINES 1
#endif
#endif

namespace verbena
{

/*
 * A lock that is held, or why it is not.  It is moved and not copied, and belongs to its client's
 * thread.  At its end the lock is released, which may take as long as vb_lock_release does; who wants
 * to know the result, as when a lease may have run out, calls release.  The client must be open until
 * then, and have no call under way: the lock would stay held.
 */
class hold
{
public:
	/* Holds nothing: error() is -EINVAL. */
	hold() noexcept = default;
	/* Acquires, and waits for that. */
	hold(vb_lock_client *client, uint64_t lock, vb_mode mode, uint64_t timeout_ns) noexcept
	    : client_(client), error_(vb_lock_acquire(client, lock, mode, timeout_ns, &grant_))
	{
	}
	/* What was acquired by a C call that returned `error`. */
	hold(vb_lock_client *client, const vb_grant &grant, int error) noexcept
	    : client_(client), grant_(grant), error_(error)
	{
	}
	hold(hold &&from) noexcept
	    : client_(from.client_), grant_(from.grant_),
	      error_(std::exchange(from.error_, -EINVAL))
	{
	}
	hold &operator=(hold &&from) noexcept
	{
		if (this != &from) {
			(void)release();
			client_ = from.client_;
			grant_ = from.grant_;
			error_ = std::exchange(from.error_, -EINVAL);
		}
		return *this;
	}
	hold(const hold &) = delete;
	hold &operator=(const hold &) = delete;
	~hold()
	{
		(void)release();
	}

	/* Whether it was granted, and not released yet. */
	explicit operator bool() const noexcept
	{
		return error_ == 0;
	}
	/* 0; why it was not granted; or -EINVAL: it was released, moved from, or never acquired. */
	int error() const noexcept
	{
		return error_;
	}
	/* Whether the client has the lock now: its lease has not ended. */
	bool valid() const noexcept
	{
		return error_ == 0 && vb_lock_valid(client_, &grant_);
	}
	/* The lock, its token and the end of its lease, once it was granted; while it is kept, but the last. */
	const vb_grant &grant() const noexcept
	{
		return grant_;
	}
	/* Gives it back before the end of the block: the result of vb_lock_release, or error() where nothing
	 * is held.  It is held as before after -EBUSY, a call with the client is under way, and -VB_EFOREIGN,
	 * called by another thread. */
	int release() noexcept
	{
		int err = error_;

		if (err != 0)
			return err;
		err = vb_lock_release(client_, &grant_);
		if (err != -EBUSY && err != -VB_EFOREIGN)
			error_ = -EINVAL;
		return err;
	}

private:
	friend class ring;
	vb_lock_client *client_ = nullptr;
	vb_grant grant_ = {};
	int error_ = -EINVAL;
};

#ifdef VERBENA_COROUTINES

/* A coroutine that nobody waits for: it begins at once and is gone at its end.  Those that shall be
 * waited for may be of any other kind. */
struct job {
	struct promise_type {
		job get_return_object() noexcept
		{
			return {};
		}
		std::suspend_never initial_suspend() noexcept
		{
			return {};
		}
		std::suspend_never final_suspend() noexcept
		{
			return {};
		}
		void return_void() noexcept
		{
		}
		void unhandled_exception() noexcept
		{
			std::terminate();
		}
	};
};

/*
 * A ring whose calls are awaited.  It is one thread's, and all that is awaited on it is resumed in that
 * thread, by resume or run; what ends at once does not suspend its coroutine.  Calls that are started on
 * the same vb_ring by other means are none of its business: it has the ring for itself.
 *
 * A coroutine must not be destroyed while it awaits.  Before the ring's end let run end: what is under way then
 * is never resumed.
 */
class ring
{
	/* What is under way, with its coroutine; it lies in the coroutine's frame. */
	class started
	{
	public:
		started(const started &) = delete;
		started &operator=(const started &) = delete;
		void await_suspend(std::coroutine_handle<> who) noexcept
		{
			who_ = who;
		}

	protected:
		explicit started(vb_ring *on, uint64_t *id) noexcept : on_(on), id_(id)
		{
		}
		/* Of a call's start; true: it has ended. */
		bool ended(int err) noexcept
		{
			result_ = err;
			return err != VB_STARTED;
		}
		vb_ring *on_;
		uint64_t *id_;
		int result_ = 0;

	private:
		friend class ring;
		std::coroutine_handle<> who_;
	};

	class acquiring : public started
	{
	public:
		bool await_ready() noexcept
		{
			return ended(vb_lock_acquire_start(on_, client_, lock_, mode_, timeout_ns_,
							   &grant_, static_cast<started *>(this),
							   id_));
		}
		hold await_resume() noexcept
		{
			return hold(client_, grant_, result_);
		}

	private:
		friend class ring;
		acquiring(vb_ring *on, vb_lock_client *client, uint64_t lock, vb_mode mode,
			  uint64_t timeout_ns, uint64_t *id) noexcept
		    : started(on, id), client_(client), lock_(lock), timeout_ns_(timeout_ns),
		      mode_(mode)
		{
		}
		vb_lock_client *client_;
		vb_grant grant_ = {};
		uint64_t lock_, timeout_ns_;
		vb_mode mode_;
	};

	class releasing : public started
	{
	public:
		bool await_ready() noexcept
		{
			if (!held_)
				return ended(held_.error());
			return ended(vb_lock_release_start(on_, held_.client_, &held_.grant_,
							   static_cast<started *>(this), id_));
		}
		int await_resume() noexcept
		{
			/* Not started, and held as before. */
			if (held_ && result_ != -EBUSY && result_ != -ENOSPC &&
			    result_ != -ENOMEM && result_ != -VB_EFOREIGN)
				held_.error_ = -EINVAL;
			return result_;
		}

	private:
		friend class ring;
		releasing(vb_ring *on, hold &held) noexcept : started(on, nullptr), held_(held)
		{
		}
		hold &held_;
	};

	class keeping : public started
	{
	public:
		bool await_ready() noexcept
		{
			if (!held_)
				return ended(held_.error());
			return ended(vb_lock_keep_start(on_, held_.client_, &held_.grant_,
							static_cast<started *>(this), id_));
		}
		int await_resume() noexcept
		{
			return result_;
		}

	private:
		friend class ring;
		keeping(vb_ring *on, hold &held, uint64_t *id) noexcept
		    : started(on, id), held_(held)
		{
		}
		hold &held_;
	};

	template <typename F> class calling : public started
	{
	public:
		bool await_ready() noexcept
		{
			return ended(
				vb_ring_call(on_, run, this, static_cast<started *>(this), id_));
		}
		int await_resume() noexcept
		{
			return result_;
		}

	private:
		friend class ring;
		calling(vb_ring *on, F &&what, uint64_t *id)
		    : started(on, id), what_(std::forward<F>(what))
		{
		}
		static int run(void *self) noexcept
		{
			return static_cast<calling *>(self)->what_();
		}
		F what_;
	};

public:
	ring() noexcept = default;
	ring(const ring &) = delete;
	ring &operator=(const ring &) = delete;
	~ring()
	{
		(void)close();
	}

	/* vb_ring_open, _close, _fd, _arm and _cancel, with their errors. */
	int open(const vb_ring_params *params = nullptr) noexcept
	{
		return ring_ != nullptr ? -EBUSY : vb_ring_open(params, &ring_);
	}
	int close() noexcept
	{
		int err = vb_ring_close(ring_);

		if (err == 0)
			ring_ = nullptr;
		return err;
	}
	int fd() const noexcept
	{
		return vb_ring_fd(ring_);
	}
	int arm() noexcept
	{
		return vb_ring_arm(ring_);
	}
	int cancel(uint64_t id) noexcept
	{
		return vb_ring_cancel(ring_, id);
	}

	/* Resumes those whose calls have ended, and does not wait: how many, or an error of vb_ring_reap.  An
	 * exception that a coroutine's promise lets out comes out here, and of run; the others are resumed next
	 * time. */
	int resume()
	{
		int n = 0;

		/* One by one: what was reaped and is not resumed would never be. */
		while (n < 64) {
			vb_completion done;
			int err = vb_ring_reap(ring_, &done, 1);

			if (err <= 0)
				return n > 0 ? n : err;
			n++;

			started *one = static_cast<started *>(done.tag);

			one->result_ = done.result;
			one->who_.resume();
		}
		return n;
	}
	/* Resumes until nothing is under way: 0, or an error of vb_ring_wait. */
	int run()
	{
		for (;;) {
			int n = resume();

			if (n == 0)
				n = vb_ring_wait(ring_, VB_FOREVER_NS);
			if (n < 0)
				return n == -ENOENT ? 0 : n;
		}
	}

	/* Awaited, a hold.  `id`, where it is not null, is for cancel, once the coroutine is suspended. */
	acquiring acquire(vb_lock_client *client, uint64_t lock, vb_mode mode, uint64_t timeout_ns,
			  uint64_t *id = nullptr) noexcept
	{
		return acquiring(ring_, client, lock, mode, timeout_ns, id);
	}
	/* Awaited, the result of vb_lock_release, or of its start, after which the lock is held as before.  The
	 * hold must stay where it is until then. */
	releasing release(hold &held) noexcept
	{
		return releasing(ring_, held);
	}
	/* Keeps it until it is cancelled or lost: awaited, the result of vb_lock_keep_start or of its completion.
	 * The hold must stay where it is until then, and its client has no other call. */
	keeping keep(hold &held, uint64_t *id) noexcept
	{
		return keeping(ring_, held, id);
	}
	/* Runs what() on the ring: awaited, its result, which is 0 or negative.  What it may do is said at
	 * vb_ring_call.  An exception that leaves it ends the program; and while it handles one, in a catch
	 * block, it calls nothing of Verbena. */
	template <typename F> calling<F> call(F &&what, uint64_t *id = nullptr)
	{
		return calling<F>(ring_, std::forward<F>(what), id);
	}

private:
	vb_ring *ring_ = nullptr;
};

#endif /* VERBENA_COROUTINES */

} // namespace verbena

#endif
