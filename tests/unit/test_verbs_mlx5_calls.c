/* SPDX-License-Identifier: Apache-2.0 */
/* ConnectX without a card: the calls to the driver's library, against one made up here. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "vb_config.h"

#if !VB_HAVE_MLX5DV

static void mlx5(void **state)
{
	(void)state;
	print_message("built without the headers of mlx5dv (Debian: libibverbs-dev)\n");
	skip();
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(mlx5)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

#include <arpa/inet.h>

#include "base/log.h"
#include "fabric/verbs/mlx5.h"
#include "fabric/verbs/mlx5_wqe.h"

/* A request whose every byte can be told from every other. */
static struct verbs_ext_wr example(uint8_t op)
{
	return (struct verbs_ext_wr){
		.op = op,
		.wr_id = 77,
		.remote = 0x0102030405060708,
		.rkey = 0x090a0b0c,
		.lkey = 0x0d0e0f10,
		.result = (void *)(uintptr_t)0x1112131415161718,
		.compare = {.lo = 0x2021222324252627, .hi = 0x28292a2b2c2d2e2f},
		.compare_mask = {.lo = 0xb0b1b2b3b4b5b6b7, .hi = 0xb8b9babbbcbdbebf},
		.swap = {.lo = 0x4041424344454647, .hi = 0x48494a4b4c4d4e4f},
		.swap_mask = {.lo = 0x5051525354555657, .hi = 0x58595a5b5c5d5e5f},
	};
}

static void fill_answer(uint8_t *out, uint8_t mode, uint16_t ops, uint16_t sizes)
{
	memset(out, 0, VERBS_MLX5_QUERY_OUT);
	out[16 + 8] = (uint8_t)(mode << 6);
	out[16 + 18] = (uint8_t)(ops >> 8), out[16 + 19] = (uint8_t)ops;
	out[16 + 22] = (uint8_t)(sizes >> 8), out[16 + 23] = (uint8_t)sizes;
	out[16 + 26] = 0x01, out[16 + 27] = 0x08;
}

/* ---- the driver's library, made up ---- */

#define CALLS_MAX 16
static struct {
	bool supported;
	int cmd_errno;
	uint8_t answer[VERBS_MLX5_QUERY_OUT];

	struct ibv_qp_init_attr_ex ex[2];
	struct mlx5dv_qp_init_attr dv[2];
	unsigned made, refuse_from, destroyed;
	struct ibv_qp *gone[2];
	struct ibv_qp_attr attr[CALLS_MAX];
	struct ibv_qp *whose[CALLS_MAX];
	int mask[CALLS_MAX];
	unsigned modified, modify_fails_at;

	unsigned starts, completes, aborts, raws, sends, sges, inlines, addrs;
	int complete_errno;
	uint8_t wqe[CALLS_MAX][VERBS_MLX5_WQE_MAX];
	uint64_t wr_id[CALLS_MAX];
	unsigned wr_flags[CALLS_MAX];
	uint32_t imm[CALLS_MAX], number[CALLS_MAX], lkey[CALLS_MAX], bytes[CALLS_MAX];
	uint64_t addr[CALLS_MAX], key[CALLS_MAX];
	struct ibv_ah *ah[CALLS_MAX];
} fake;
static struct ibv_qp_ex fake_qp[2];
static struct mlx5dv_qp_ex fake_dv;
static struct ibv_device fake_device;
static struct ibv_context fake_ctx = {.device = &fake_device};
static struct ibv_pd fake_pd = {.context = &fake_ctx};

static bool fake_is_supported(struct ibv_device *d)
{
	assert_ptr_equal(d, &fake_device);
	return fake.supported;
}

static int fake_cmd(struct ibv_context *ctx, const void *in, size_t inlen, void *out, size_t outlen)
{
	assert_ptr_equal(ctx, &fake_ctx);
	assert_int_equal(inlen, VERBS_MLX5_QUERY_IN);
	assert_int_equal(outlen, VERBS_MLX5_QUERY_OUT);
	assert_memory_equal(in, "\x01\x00\x00\x00\x00\x00\x00\x07", 8);
	memcpy(out, fake.answer, outlen);
	return fake.cmd_errno;
}

static void fake_start(struct ibv_qp_ex *q)
{
	fake.starts++;
}

static int fake_complete(struct ibv_qp_ex *q)
{
	fake.completes++;
	return fake.complete_errno;
}

static void fake_abort(struct ibv_qp_ex *q)
{
	fake.aborts++;
}

static void fake_raw(struct mlx5dv_qp_ex *dv, const void *wqe)
{
	assert_ptr_equal(dv, &fake_dv);
	assert_true(fake.raws < CALLS_MAX);
	memcpy(fake.wqe[fake.raws], wqe, (((const uint8_t *)wqe)[7] & 0x3f) * 16u);
	fake.wr_id[fake.raws++] = fake_qp[0].wr_id;
}

static void fake_send_imm(struct ibv_qp_ex *q, __be32 imm)
{
	assert_ptr_equal(q, &fake_qp[1]);
	assert_true(fake.sends < CALLS_MAX);
	fake.imm[fake.sends] = ntohl(imm);
	fake.wr_id[fake.sends] = q->wr_id;
	fake.wr_flags[fake.sends++] = q->wr_flags;
}

static void fake_set_sge(struct ibv_qp_ex *q, uint32_t lkey, uint64_t addr, uint32_t bytes)
{
	fake.lkey[fake.sends - 1] = lkey;
	fake.addr[fake.sends - 1] = addr;
	fake.bytes[fake.sends - 1] = bytes;
	fake.sges++;
}

static void fake_set_inline(struct ibv_qp_ex *q, void *addr, size_t bytes)
{
	fake.addr[fake.sends - 1] = (uintptr_t)addr;
	fake.bytes[fake.sends - 1] = (uint32_t)bytes;
	fake.inlines++;
}

static void fake_dc_addr(struct mlx5dv_qp_ex *dv, struct ibv_ah *ah, uint32_t number, uint64_t key)
{
	assert_int_equal(++fake.addrs, fake.sends);
	fake.ah[fake.sends - 1] = ah;
	fake.number[fake.sends - 1] = number;
	fake.key[fake.sends - 1] = key;
}

static struct ibv_qp *fake_create(struct ibv_context *ctx, struct ibv_qp_init_attr_ex *ex,
				  struct mlx5dv_qp_init_attr *dv)
{
	struct ibv_qp_ex *q = &fake_qp[fake.made];

	assert_ptr_equal(ctx, &fake_ctx);
	assert_true(fake.made < 2);
	if (fake.made >= fake.refuse_from) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	fake.ex[fake.made] = *ex;
	fake.dv[fake.made] = *dv;
	ex->cap.max_inline_data = 64; /* what there was, not what was asked for */
	*q = (struct ibv_qp_ex){.qp_base = {.context = ctx, .qp_num = 0x100 + fake.made},
				.wr_start = fake_start,
				.wr_complete = fake_complete,
				.wr_abort = fake_abort,
				.wr_send_imm = fake_send_imm,
				.wr_set_sge = fake_set_sge,
				.wr_set_inline_data = fake_set_inline};
	fake.made++;
	return &q->qp_base;
}

static struct ibv_qp_ex *fake_to_qp_ex(struct ibv_qp *qp)
{
	return (struct ibv_qp_ex *)qp;
}

static struct mlx5dv_qp_ex *fake_qp_ex_of(struct ibv_qp_ex *q)
{
	fake_dv = (struct mlx5dv_qp_ex){.wr_raw_wqe = fake_raw, .wr_set_dc_addr = fake_dc_addr};
	return &fake_dv;
}

static int fake_modify(struct ibv_qp *qp, struct ibv_qp_attr *a, int mask)
{
	assert_true(fake.modified < CALLS_MAX);
	fake.attr[fake.modified] = *a;
	fake.whose[fake.modified] = qp;
	fake.mask[fake.modified++] = mask;
	return fake.modified == fake.modify_fails_at ? EINVAL : 0;
}

static int fake_destroy(struct ibv_qp *qp)
{
	assert_true(fake.destroyed < 2);
	fake.gone[fake.destroyed++] = qp;
	return 0;
}

static const struct verbs_mlx5_lib fake_lib = {
	.is_supported = fake_is_supported,
	.general_cmd = fake_cmd,
	.create_qp = fake_create,
	.qp_ex_of = fake_qp_ex_of,
	.to_qp_ex = fake_to_qp_ex,
	.modify_qp = fake_modify,
	.destroy_qp = fake_destroy,
};

static int fake_begin(void **state)
{
	(void)state;
	memset(&fake, 0, sizeof(fake));
	fake.supported = true;
	fake.refuse_from = 2;
	fill_answer(fake.answer, 1, 0xf, 0x3c);
	verbs_mlx5_use(&fake_lib);
	return 0;
}

static int fake_end(void **state)
{
	(void)state;
	verbs_mlx5_use(NULL);
	return 0;
}

static void probes(void **state)
{
	const uint32_t both = VB_CAP_MASKED64 | VB_CAP_MASKED128;

	(void)state;
	assert_int_equal(verbs_mlx5_host.probe(&fake_ctx), both);
	assert_int_equal(verbs_mlx5_network.probe(&fake_ctx), 0);
	assert_ptr_equal(verbs_ext_of(&fake_ctx), &verbs_mlx5_host);
	assert_int_equal(verbs_ext_probe(&fake_ctx), both);
	fill_answer(fake.answer, 0, 0xf, 0x3c);
	assert_ptr_equal(verbs_ext_of(&fake_ctx), &verbs_mlx5_network);
	assert_int_equal(verbs_ext_probe(&fake_ctx), both);
	/* Nothing is assumed of a device that does not say. */
	fake.cmd_errno = EPERM;
	assert_null(verbs_ext_of(&fake_ctx));
	fake.cmd_errno = 0;
	fake.answer[0] = 1;
	assert_null(verbs_ext_of(&fake_ctx));
	fill_answer(fake.answer, 1, 0x3, 0x08);
	assert_null(verbs_ext_of(&fake_ctx));
	fill_answer(fake.answer, 1, 0xf, 0x3c);
	fake.supported = false;
	assert_null(verbs_ext_of(&fake_ctx));
	assert_int_equal(verbs_ext_probe(&fake_ctx), 0);
}

static void queue_pair_for_raw_requests(void **state)
{
	struct ibv_qp_init_attr a = {
		.cap = {.max_send_wr = 128, .max_send_sge = 1, .max_inline_data = 96},
		.qp_type = IBV_QPT_RC,
	};
	struct ibv_qp *qp = verbs_mlx5_host.create_qp(&fake_pd, &a);

	(void)state;
	assert_non_null(qp);
	/* Requests of two blocks: the driver is asked for twice as many, the caller sees its
	 * own. */
	assert_int_equal(fake.ex[0].cap.max_send_wr, 256);
	assert_int_equal(a.cap.max_send_wr, 128);
	assert_int_equal(a.cap.max_inline_data, 64);
	assert_ptr_equal(fake.ex[0].pd, &fake_pd);
	assert_int_equal(fake.ex[0].qp_type, IBV_QPT_RC);
	assert_true(fake.dv[0].send_ops_flags & MLX5DV_QP_EX_WITH_RAW_WQE);
	assert_true(fake.dv[0].create_flags & MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE);
	assert_int_equal(fake.dv[0].comp_mask, MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS |
						       MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS);
	fake.made = 0;
	fake.refuse_from = 0;
	a.cap.max_send_wr = 100;
	assert_null(verbs_mlx5_host.create_qp(&fake_pd, &a));
	assert_int_equal(a.cap.max_send_wr, 100);
}

static void posting(void **state)
{
	struct ibv_qp_init_attr a = {.cap = {.max_send_wr = 8}, .qp_type = IBV_QPT_RC};
	struct ibv_qp *qp = verbs_mlx5_host.create_qp(&fake_pd, &a);
	struct verbs_ext_wr wr[3] = {example(VB_OP_MCAS128), example(VB_OP_MFAA64),
				     example(VB_OP_MFAA128)};
	uint8_t want[VERBS_MLX5_WQE_MAX];

	(void)state;
	wr[1].wr_id = 78;
	wr[2].wr_id = 79;
	wr[2].signalled = true;
	assert_int_equal(verbs_mlx5_host.post(qp, wr, 3), 0);
	assert_int_equal(fake.starts, 1);
	assert_int_equal(fake.completes, 1);
	assert_int_equal(fake.raws, 3);
	for (unsigned i = 0; i < 3; i++) {
		unsigned n = verbs_mlx5_encode(&wr[i], qp->qp_num, want);

		assert_memory_equal(fake.wqe[i], want, n);
		assert_int_equal(fake.wr_id[i], 77 + i);
	}
	/* A full queue, as the driver says it. */
	fake.complete_errno = ENOMEM;
	assert_int_equal(verbs_mlx5_host.post(qp, wr, 1), -ENOMEM);
	/* One that cannot be done takes the others back. */
	fake.complete_errno = 0;
	fake.completes = 0;
	wr[1] = example(VB_OP_MFAA128);
	wr[1].compare_mask.lo = 1;
	char text[256];

	vb_log_capture_begin(text, sizeof(text));
	assert_int_equal(verbs_mlx5_host.post(qp, wr, 3), -EOPNOTSUPP);
	vb_log_capture_end();
	assert_non_null(strstr(text, "both words"));
	assert_int_equal(fake.aborts, 1);
	assert_int_equal(fake.completes, 0);
}

/* ---- dynamic connections ---- */

static struct verbs_dc_params dc_params(void)
{
	return (struct verbs_dc_params){
		.pd = &fake_pd,
		.srq = (struct ibv_srq *)(uintptr_t)0x5000,
		.depth = 32,
		.max_inline = 100,
		.key = 0xabcdef0123456789,
		.port = 1,
		.gid_index = 3,
		.global = true,
		.mtu = IBV_MTU_1024,
		.timeout = 14,
		.retries = 6,
	};
}

static void dc_opens_and_closes(void **state)
{
	struct verbs_dc_params p = dc_params();
	struct verbs_dc dc;

	(void)state;
	assert_int_equal(verbs_dc_open(&p, &dc), 0);
	assert_int_equal(fake.dv[0].dc_init_attr.dc_type, MLX5DV_DCTYPE_DCT);
	assert_int_equal(fake.dv[0].dc_init_attr.dct_access_key, p.key);
	assert_ptr_equal(fake.ex[0].srq, p.srq);
	assert_int_equal(fake.dv[1].dc_init_attr.dc_type, MLX5DV_DCTYPE_DCI);
	assert_int_equal(fake.ex[1].send_ops_flags, IBV_QP_EX_WITH_SEND_WITH_IMM);
	assert_int_equal(fake.ex[1].cap.max_send_wr, 32);
	assert_null(fake.ex[1].srq);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(fake.ex[i].qp_type, IBV_QPT_DRIVER);
		assert_true(fake.dv[i].comp_mask & MLX5DV_QP_INIT_ATTR_MASK_DC);
	}
	assert_int_equal(dc.number, 0x100);
	assert_int_equal(dc.max_inline, 64);

	/* The target to RTR, the initiator to RTS. */
	static const enum ibv_qp_state states[] = {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_INIT,
						   IBV_QPS_RTR, IBV_QPS_RTS};
	assert_int_equal(fake.modified, 5);
	for (unsigned i = 0; i < 5; i++) {
		assert_int_equal(fake.attr[i].qp_state, states[i]);
		assert_true(fake.mask[i] & IBV_QP_STATE);
		assert_ptr_equal(fake.whose[i], i < 2 ? dc.target : dc.initiator);
	}
	assert_true(fake.mask[0] & IBV_QP_ACCESS_FLAGS);
	assert_int_equal(fake.attr[0].qp_access_flags, 0); /* messages only, no memory */
	assert_int_equal(fake.attr[1].ah_attr.grh.sgid_index, 3);
	assert_int_equal(fake.attr[1].path_mtu, IBV_MTU_1024);
	assert_true(fake.mask[1] & IBV_QP_MIN_RNR_TIMER && fake.mask[1] & IBV_QP_AV);
	assert_int_equal(fake.attr[4].timeout, 14);
	assert_int_equal(fake.attr[4].retry_cnt, 6);

	struct ibv_qp *initiator = dc.initiator, *target = dc.target;

	verbs_dc_close(&dc);
	assert_int_equal(fake.destroyed, 2);
	assert_ptr_equal(fake.gone[0], initiator);
	assert_ptr_equal(fake.gone[1], target);
	verbs_dc_close(&dc);
	assert_int_equal(fake.destroyed, 2);
}

static void dc_is_not_offered(void **state)
{
	struct verbs_dc_params p = dc_params();
	struct verbs_dc dc;

	(void)state;
	for (unsigned made = 0; made < 2; made++) {
		fake.made = fake.destroyed = 0;
		fake.refuse_from = made;
		assert_int_equal(verbs_dc_open(&p, &dc), -EOPNOTSUPP);
		assert_int_equal(fake.destroyed, made);
	}
	fake.supported = false;
	assert_int_equal(verbs_dc_open(&p, &dc), -EOPNOTSUPP);
}

static void dc_fails_on_the_way(void **state)
{
	struct verbs_dc_params p = dc_params();
	char text[256];

	(void)state;
	for (unsigned at = 1; at <= 5; at++) {
		struct verbs_dc dc;

		fake_begin(state);
		fake.modify_fails_at = at;
		vb_log_capture_begin(text, sizeof(text));
		assert_int_equal(verbs_dc_open(&p, &dc), -EINVAL);
		vb_log_capture_end();
		assert_non_null(strstr(text, at <= 2 ? "target" : "initiator"));
		assert_int_equal(fake.modified, at);
		assert_int_equal(fake.destroyed, 2);
		assert_null(dc.initiator);
		assert_null(dc.target);
	}
}

static void dc_sends(void **state)
{
	struct verbs_dc_params p = dc_params();
	char message[64], text[256];
	struct verbs_dc_wr wr[2] = {
		{.to = (struct ibv_ah *)(uintptr_t)0x6000,
		 .number = 0x222,
		 .key = 0x1111,
		 .wr_id = 5,
		 .addr = (uintptr_t)message,
		 .bytes = 64,
		 .imm = 0x01020304,
		 .inlined = true},
		{.to = (struct ibv_ah *)(uintptr_t)0x7000,
		 .number = 0x333,
		 .key = 0x2222,
		 .wr_id = 6,
		 .addr = 0x8000,
		 .bytes = 200,
		 .lkey = 9,
		 .signalled = true,
		 .fence = true},
	};
	struct verbs_dc dc;

	(void)state;
	assert_int_equal(verbs_dc_open(&p, &dc), 0);
	assert_int_equal(verbs_dc_post(&dc, wr, 2), 0);
	assert_int_equal(fake.starts, 1);
	assert_int_equal(fake.completes, 1);
	assert_int_equal(fake.sends, 2);
	assert_int_equal(fake.addrs, 2);
	assert_int_equal(fake.inlines, 1);
	assert_int_equal(fake.sges, 1);
	assert_int_equal(fake.lkey[1], 9);
	for (unsigned i = 0; i < 2; i++) {
		assert_ptr_equal(fake.ah[i], wr[i].to);
		assert_int_equal(fake.number[i], wr[i].number);
		assert_int_equal(fake.key[i], wr[i].key);
		assert_int_equal(fake.wr_id[i], wr[i].wr_id);
		assert_int_equal(fake.imm[i], wr[i].imm);
		assert_int_equal(fake.addr[i], wr[i].addr);
		assert_int_equal(fake.bytes[i], wr[i].bytes);
	}
	assert_int_equal(fake.wr_flags[0], 0);
	assert_int_equal(fake.wr_flags[1], IBV_SEND_SIGNALED | IBV_SEND_FENCE);
	/* More than the device copies: nothing is begun. */
	wr[0].bytes = 65;
	vb_log_capture_begin(text, sizeof(text));
	assert_int_equal(verbs_dc_post(&dc, wr, 2), -EINVAL);
	vb_log_capture_end();
	assert_int_equal(fake.starts, 1);
	fake.complete_errno = ENOMEM;
	wr[0].bytes = 64;
	assert_int_equal(verbs_dc_post(&dc, wr, 1), -ENOMEM);
	verbs_dc_close(&dc);
}

#define WITH_FAKE(test) cmocka_unit_test_setup_teardown(test, fake_begin, fake_end)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_FAKE(probes),
		WITH_FAKE(queue_pair_for_raw_requests),
		WITH_FAKE(posting),
		WITH_FAKE(dc_opens_and_closes),
		WITH_FAKE(dc_is_not_offered),
		WITH_FAKE(dc_fails_on_the_way),
		WITH_FAKE(dc_sends),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

#endif
