/* SPDX-License-Identifier: MIT
 * gdn_recompute_wu: against the reference. */
#include <math.h>
#include <string.h>

#include "support/gdn_stages.h"

static void test_reference(void **state)
{
    (void)state;
    /* bf16: half a unit in 8 bits of values up to a few times the rms */
    stages_test(QRN_OP_gdn_recompute_wu, offsetof(struct stages, wu), 4e-6, 6e-2);
}

static void test_errors(void **state)
{
    (void)state;
    struct mem m = {0};
    struct stages s;
    struct qrn_device *dev;
    assert_int_equal(qrn_device_open(NULL, &dev, NULL), QRN_OK);
    stages_make(&s, &m, &stages_cases[2], 1);
    struct qrn_gdn_recompute_wu_args a = s.wu;
#define FAILS(status, text) op_test_fails(dev, QRN_OP_gdn_recompute_wu, &a, status, text); a = s.wu
    a.v.n_dims = 0;
    FAILS(QRN_ERR_ARGUMENT, "gdn_recompute_wu: v is missing");
    a.v.dtype = QRN_BF16;
    FAILS(QRN_ERR_DTYPE, "v is bf16, wants f32");
    a.v.shape[0] = 100;
    FAILS(QRN_ERR_SHAPE, "v.shape[0] is 100, wants 200");
    a.v.shape[2] = 0;
    FAILS(QRN_ERR_SHAPE, "v.shape[2] is 0, wants 1 or more");
    a.beta.shape[1] = 1;
    FAILS(QRN_ERR_SHAPE, "beta.shape[1] is 1, wants 2");
    a.G.dtype = QRN_F16;
    FAILS(QRN_ERR_DTYPE, "G is f16, wants f32 or f64");
    a.inverse.shape[2] = 63;
    FAILS(QRN_ERR_SHAPE, "inverse.shape[2] is 63, wants 64");
    a.w.shape[2] = 47;
    FAILS(QRN_ERR_SHAPE, "w.shape[2] is 47, wants 48");
    a.u.dtype = QRN_BF16;
    FAILS(QRN_ERR_DTYPE, "u is bf16, wants f32");
    a.u = a.v;
    FAILS(QRN_ERR_ARGUMENT, "u overlaps v");
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
