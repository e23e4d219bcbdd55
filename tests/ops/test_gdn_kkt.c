/* SPDX-License-Identifier: MIT
 * gdn_kkt: against the reference. */
#include <math.h>
#include <string.h>

#include "support/gdn_stages.h"

static void test_reference(void **state)
{
    (void)state;
    /* sums of d_k products; more than half of A is zeros, which makes the rms small */
    stages_test(QRN_OP_gdn_kkt, offsetof(struct stages, kkt), 1e-5, 1e-5);
}

static void test_errors(void **state)
{
    (void)state;
    struct mem m = {0};
    struct stages s;
    struct qrn_device *dev;
    assert_int_equal(qrn_device_open(NULL, &dev, NULL), QRN_OK);
    stages_make(&s, &m, &stages_cases[2], 1);
    struct qrn_gdn_kkt_args a = s.kkt;
#define FAILS(status, text) op_test_fails(dev, QRN_OP_gdn_kkt, &a, status, text); a = s.kkt
    a.k.n_dims = 0;
    FAILS(QRN_ERR_ARGUMENT, "gdn_kkt: k is missing");
    a.k.dtype = QRN_F16;
    FAILS(QRN_ERR_DTYPE, "k is f16, wants f32 or bf16");
    a.k.shape[2] = 0;
    FAILS(QRN_ERR_SHAPE, "k.shape[2] is 0, wants 1 or more");
    a.beta.shape[0] = 3;
    FAILS(QRN_ERR_SHAPE, "beta.shape[0] is 3, wants 200");
    a.G.shape[1] = 1;
    FAILS(QRN_ERR_SHAPE, "G.shape[1] is 1, wants 2");
    a.A.shape[2] = 32;
    FAILS(QRN_ERR_SHAPE, "A.shape[2] is 32, wants 64");
    a.A.dtype = QRN_BF16;
    FAILS(QRN_ERR_DTYPE, "A is bf16, wants f32");
    a.k.shape[1] = 3;
    a.k.shape[2] = 16;
    a.k.stride[1] = 16;
    FAILS(QRN_ERR_SHAPE, "2 value heads, wants a multiple of the 3 key heads");
    a.head_map = (enum qrn_head_map)0;
    FAILS(QRN_ERR_ARGUMENT, "head_map is 0, wants QRN_HEADS_BLOCK (1) or QRN_HEADS_TILED (2)");
    s.seq_begin[4] = 199;
    FAILS(QRN_ERR_ARGUMENT, "seq_begin[4] is 199, wants 200 (the tokens)");
    s.seq_begin[4] = 200;
    s.seq_begin[1] = 100;
    FAILS(QRN_ERR_ARGUMENT, "seq_begin[2] is 50, wants 100 or more");
#undef FAILS
    qrn_device_close(dev);
    mem_free_all(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
