/* SPDX-License-Identifier: Apache-2.0 */
/* Does the RDMA device work at all?  Plain libibverbs, nothing of Verbena's: when this fails, look
 * at the guest or the card and not at our fabric.  VERBENA_VERBS_DEVICE names the device, and
 * VERBENA_VERBS_DEVICE2 the one at the other end (default: the same). */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#if !__has_include(<infiniband/verbs.h>)
int main(void)
{
	puts("1..1\nok 1 - smoke # SKIP built without libibverbs' headers (libibverbs-dev)");
	return 0;
}
#else
#include <infiniband/verbs.h>

#define PORT       1
#define WORDS      64
/* Generous: an emulated CPU under a sanitizer on a busy machine. */
#define PATIENCE_S 20

struct end {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	struct ibv_port_attr port;
	union ibv_gid gid;
	int gid_index; /* -1: an InfiniBand port, reached by its LID */
	uint64_t words[WORDS];
};

static struct end near_end, far_end;

static const char *device_name(int i)
{
	const char *first = getenv("VERBENA_VERBS_DEVICE"),
		   *second = getenv("VERBENA_VERBS_DEVICE2");

	return i == 1 && second != NULL ? second : first;
}

static void need_device(void)
{
	if (device_name(0) != NULL)
		return;
	print_message("VERBENA_VERBS_DEVICE names no RDMA device\n");
	skip();
}

/* RoCE v2 over IPv4; a link-local GID would need a neighbour entry of its own. */
static int find_gid(struct end *e)
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
	struct ibv_gid_entry entry;

	if (e->port.link_layer != IBV_LINK_LAYER_ETHERNET)
		return -1;
	for (int i = 0; i < e->port.gid_tbl_len; i++)
		if (ibv_query_gid_ex(e->ctx, PORT, (uint32_t)i, &entry, 0) == 0 &&
		    entry.gid_type == IBV_GID_TYPE_ROCE_V2 &&
		    memcmp(entry.gid.raw, mapped, sizeof(mapped)) == 0) {
			e->gid = entry.gid;
			return i;
		}
	fail_msg("port %d has no RoCE v2 GID over IPv4: give its network device an address", PORT);
	return -1;
}

static void end_open(struct end *e, const char *name)
{
	int n = 0;
	struct ibv_device **list = ibv_get_device_list(&n);

	memset(e, 0, sizeof(*e));
	for (int i = 0; i < n; i++)
		if (strcmp(ibv_get_device_name(list[i]), name) == 0)
			e->ctx = ibv_open_device(list[i]);
	if (list != NULL)
		ibv_free_device_list(list);
	if (e->ctx == NULL)
		fail_msg("no RDMA device %s among %d, or it cannot be opened", name, n);
	assert_int_equal(ibv_query_port(e->ctx, PORT, &e->port), 0);
	e->gid_index = find_gid(e);
	e->pd = ibv_alloc_pd(e->ctx);
	e->cq = ibv_create_cq(e->ctx, 64, NULL, NULL, 0);
	assert_non_null(e->pd);
	assert_non_null(e->cq);
	e->mr = ibv_reg_mr(e->pd, e->words, sizeof(e->words),
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
				   IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
	assert_non_null(e->mr);
	e->qp = ibv_create_qp(e->pd, &(struct ibv_qp_init_attr){
					     .send_cq = e->cq,
					     .recv_cq = e->cq,
					     .qp_type = IBV_QPT_RC,
					     .cap = {.max_send_wr = 32,
						     .max_send_sge = 1,
						     .max_recv_wr = 1,
						     .max_recv_sge = 1},
				     });
	assert_non_null(e->qp);
}

static void end_close(struct end *e)
{
	if (e->ctx == NULL)
		return;
	assert_int_equal(ibv_destroy_qp(e->qp), 0);
	assert_int_equal(ibv_dereg_mr(e->mr), 0);
	assert_int_equal(ibv_destroy_cq(e->cq), 0);
	assert_int_equal(ibv_dealloc_pd(e->pd), 0);
	assert_int_equal(ibv_close_device(e->ctx), 0);
	e->ctx = NULL;
}

static void end_connect(struct end *e, const struct end *to)
{
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_INIT,
		.port_num = PORT,
		.qp_access_flags =
			IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC,
	};

	assert_int_equal(
		ibv_modify_qp(e->qp, &a,
			      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
		0);
	a = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = to->qp->qp_num,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = {.port_num = PORT, .dlid = to->port.lid},
	};
	if (e->gid_index >= 0) {
		a.ah_attr.is_global = 1;
		a.ah_attr.grh.dgid = to->gid;
		a.ah_attr.grh.sgid_index = (uint8_t)e->gid_index;
		a.ah_attr.grh.hop_limit = 64;
	}
	assert_int_equal(ibv_modify_qp(e->qp, &a,
				       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
					       IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
					       IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
			 0);
	a = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS,
		.timeout = 14,
		.retry_cnt = 6,
		.rnr_retry = 6,
		.max_rd_atomic = 1,
	};
	assert_int_equal(ibv_modify_qp(e->qp, &a,
				       IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
					       IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
					       IBV_QP_MAX_QP_RD_ATOMIC),
			 0);
}

static void join(int far_device)
{
	need_device();
	end_open(&near_end, device_name(0));
	end_open(&far_end, device_name(far_device));
	end_connect(&near_end, &far_end);
	end_connect(&far_end, &near_end);
}

static int teardown(void **state)
{
	(void)state;
	end_close(&near_end);
	end_close(&far_end);
	return 0;
}

/* ---- work requests ---- */

struct request {
	struct ibv_send_wr wr;
	struct ibv_sge sge;
};

/* From or to near word `local`, on far word `remote`. */
static struct ibv_send_wr *request(struct request *r, enum ibv_wr_opcode op, unsigned local,
				   unsigned remote, uint64_t a, uint64_t b)
{
	uint64_t at = (uintptr_t)&far_end.words[remote];

	r->sge = (struct ibv_sge){(uintptr_t)&near_end.words[local], 8, near_end.mr->lkey};
	r->wr = (struct ibv_send_wr){.sg_list = &r->sge, .num_sge = 1, .opcode = op};
	if (op == IBV_WR_ATOMIC_CMP_AND_SWP || op == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		r->wr.wr.atomic.remote_addr = at;
		r->wr.wr.atomic.rkey = far_end.mr->rkey;
		r->wr.wr.atomic.compare_add = a;
		r->wr.wr.atomic.swap = b;
	} else {
		r->wr.wr.rdma.remote_addr = at;
		r->wr.wr.rdma.rkey = far_end.mr->rkey;
	}
	return &r->wr;
}

static struct ibv_wc completion(void)
{
	const time_t end = time(NULL) + PATIENCE_S;
	struct ibv_wc wc;

	for (;;) {
		int n = ibv_poll_cq(near_end.cq, 1, &wc);

		assert_in_range(n, 0, 1);
		if (n == 1)
			return wc;
		if (time(NULL) > end)
			fail_msg("no completion within %d s", PATIENCE_S);
	}
}

static void post(struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad = NULL;

	assert_int_equal(ibv_post_send(near_end.qp, wr, &bad), 0);
}

static uint64_t one(enum ibv_wr_opcode op, unsigned remote, uint64_t a, uint64_t b)
{
	struct request r;

	request(&r, op, 0, remote, a, b)->send_flags = IBV_SEND_SIGNALED;
	post(&r.wr);
	assert_int_equal(completion().status, IBV_WC_SUCCESS);
	return near_end.words[0];
}

static void works(void)
{
	far_end.words[5] = 40;
	assert_int_equal(one(IBV_WR_RDMA_READ, 5, 0, 0), 40);
	assert_int_equal(one(IBV_WR_ATOMIC_FETCH_AND_ADD, 5, 2, 0), 40);
	assert_int_equal(one(IBV_WR_ATOMIC_CMP_AND_SWP, 5, 41, 7), 42);
	assert_int_equal(one(IBV_WR_ATOMIC_CMP_AND_SWP, 5, 42, 7), 42);
	assert_int_equal(one(IBV_WR_RDMA_READ, 5, 0, 0), 7);
	near_end.words[0] = 99;
	one(IBV_WR_RDMA_WRITE, 6, 0, 0);
	assert_int_equal(one(IBV_WR_RDMA_READ, 6, 0, 0), 99);
}

/* ---- cases ---- */

static void devices(void **state)
{
	(void)state;
	need_device();
	for (int i = 0; i < 2; i++) {
		struct ibv_device_attr attr;
		struct end e;

		end_open(&e, device_name(i));
		assert_int_equal(e.port.state, IBV_PORT_ACTIVE);
		assert_int_equal(ibv_query_device(e.ctx, &attr), 0);
		assert_int_not_equal(attr.atomic_cap, IBV_ATOMIC_NONE);
		print_message("%s: GID index %d, MTU %d, %d READs and atomics at a time\n",
			      device_name(i), e.gid_index, 128 << e.port.active_mtu,
			      attr.max_qp_rd_atom);
		end_close(&e);
	}
}

static void loopback(void **state)
{
	(void)state;
	join(0);
	works();
}

static void two_devices(void **state)
{
	(void)state;
	join(1);
	works();
}

/* One doorbell, one completion, results in order. */
static void chain(void **state)
{
	struct request r[4];
	struct ibv_wc wc;

	(void)state;
	join(1);
	near_end.words[1] = 10;
	request(&r[0], IBV_WR_RDMA_WRITE, 1, 8, 0, 0);
	request(&r[1], IBV_WR_ATOMIC_FETCH_AND_ADD, 2, 8, 5, 0);
	request(&r[2], IBV_WR_ATOMIC_FETCH_AND_ADD, 3, 8, 6, 0);
	request(&r[3], IBV_WR_RDMA_READ, 4, 8, 0, 0)->send_flags = IBV_SEND_SIGNALED;
	for (int i = 0; i < 3; i++)
		r[i].wr.next = &r[i + 1].wr;
	r[3].wr.wr_id = 77;
	post(&r[0].wr);
	wc = completion();
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.wr_id, 77);
	assert_int_equal(near_end.words[2], 10);
	assert_int_equal(near_end.words[3], 15);
	assert_int_equal(near_end.words[4], 21);
	assert_int_equal(ibv_poll_cq(near_end.cq, 1, &wc), 0);
}

static void wrong_key(void **state)
{
	struct request r[2];

	(void)state;
	join(1);
	request(&r[0], IBV_WR_RDMA_READ, 0, 0, 0, 0)->send_flags = IBV_SEND_SIGNALED;
	request(&r[1], IBV_WR_RDMA_READ, 0, 0, 0, 0)->send_flags = IBV_SEND_SIGNALED;
	r[0].wr.next = &r[1].wr;
	r[0].wr.wr.rdma.rkey ^= 0x5500;
	post(&r[0].wr);
	assert_int_equal(completion().status, IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(completion().status, IBV_WC_WR_FLUSH_ERR);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(devices),
		cmocka_unit_test_teardown(loopback, teardown),
		cmocka_unit_test_teardown(two_devices, teardown),
		cmocka_unit_test_teardown(chain, teardown),
		cmocka_unit_test_teardown(wrong_key, teardown),
	};

	return cmocka_run_group_tests_name("rdma smoke", tests, NULL, NULL);
}
#endif
