/* SPDX-License-Identifier: MIT
 * gdn_cumsum: against the reference; in place. */
#include <math.h>
#include <string.h>

#include "support/gdn_stages.h"

static void test_reference(void **state)
{
    (void)state;
    /* one rounding */
    stages_test(QRN_OP_gdn_cumsum, offsetof(struct stages, cumsum), 1e-6, 1e-6);
}

static void test_in_place(void **state)
{
    (void)state;
    struct devices d;
    struct mem m = {0};
    struct stages s;
    devices_open_for(&d, 2, QRN_OP_gdn_cumsum);
    stages_make(&s, &m, &stages_cases[2], 1);
    s.cumsum.G = s.cumsum.g;
    for (size_t j = 0; j < d.n; j++)
        op_test_against_reference(d.dev[j], QRN_OP_gdn_cumsum, &s.cumsum, 1e-6, "in place");
    devices_close(&d);
    mem_free_all(&m);
}

static void test_n_chunks(void **state)
{
    static const int32_t begin[] = {0, 64, 64, 129, 130};
    (void)state;
    assert_int_equal(qrn_gdn_n_chunks(NULL, 0, 0), 0);
    assert_int_equal(qrn_gdn_n_chunks(NULL, 1, 64), 1);
    assert_int_equal(qrn_gdn_n_chunks(NULL, 1, 65), 2);
    assert_int_equal(qrn_gdn_n_chunks(begin, 4, 130), 1 + 0 + 2 + 1);
}

static void test_errors(void **state)
{
    (void)state;
    struct mem m = {0};
    struct stages s;
    struct qrn_device *dev;
    assert_int_equal(qrn_device_open(NULL, &dev, NULL), QRN_OK);
    stages_make(&s, &m, &stages_cases[2], 1);
    struct qrn_gdn_cumsum_args a = s.cumsum;
#define FAILS(status, text) op_test_fails(dev, QRN_OP_gdn_cumsum, &a, status, text); a = s.cumsum
    a.g.n_dims = 0;
    FAILS(QRN_ERR_ARGUMENT, "gdn_cumsum: g is missing");
    a.g.dtype = QRN_F16;
    FAILS(QRN_ERR_DTYPE, "g is f16, wants f32");
    a.G.dtype = QRN_BF16;
    FAILS(QRN_ERR_DTYPE, "G is bf16, wants f32 or f64");
    a.G.shape[1] = 1;
    FAILS(QRN_ERR_SHAPE, "G.shape[1] is 1, wants 2 (that of g)");
    a.seq_begin.dtype = QRN_F32;
    FAILS(QRN_ERR_DTYPE, "seq_begin is f32, wants i32");
    a.G = a.g;
    a.G.data = (float *)a.G.data - 1;
    FAILS(QRN_ERR_ARGUMENT, "G overlaps g");
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
        cmocka_unit_test(test_in_place),
        cmocka_unit_test(test_n_chunks),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
