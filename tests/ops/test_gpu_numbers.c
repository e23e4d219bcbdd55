/* SPDX-License-Identifier: MIT
 * Ids and positions in memory that the host cannot read: device code guards itself. */
#include <math.h>
#include <string.h>

#include "support/op_test.h"

/* Numbers that core cannot look at: what is out of range becomes NaN, and nothing else is touched. */
static void test_out_of_range(void **state)
{
    (void)state;
    struct qrn_error err;
    struct mem m = {0};
    struct rng r = {3};
    struct devices d;
    devices_open_for(&d, 1, QRN_OP_embedding);
    struct qrn_device *dev = d.dev[d.n - 1];
    if (qrn_device_host_reads(dev)) {
        devices_close(&d);
        skip();
    }
    static const int32_t ids[] = {1, -1, 4, INT32_MAX, INT32_MIN, 3};
    const struct qrn_embedding_args e = {
        .table = mem_filled(&m, &r, 1.0, 2, (const int64_t[]){4, 8}),
        .ids = mem_tensor(&m, QRN_I32, 1, (const int64_t[]){6}),
        .out = mem_tensor(&m, QRN_F32, 2, (const int64_t[]){6, 8})};
    memcpy(e.ids.data, ids, sizeof ids);
    if (qrn_embedding(dev, &e, &err) != QRN_OK) fail_msg("%s", err.text);
    const struct qrn_rope_args p = {.x = mem_filled(&m, &r, 1.0, 3, (const int64_t[]){6, 1, 8}),
                                    .positions = mem_tensor(&m, QRN_I32, 1, (const int64_t[]){6}),
                                    .out = mem_tensor(&m, QRN_F32, 3, (const int64_t[]){6, 1, 8}),
                                    .n_rot = 4,
                                    .theta = 1e4};
    static const int32_t positions[] = {1, -1, 16777217, INT32_MAX, INT32_MIN, 3};
    memcpy(p.positions.data, positions, sizeof positions);
    if (qrn_rope(dev, &p, &err) != QRN_OK) fail_msg("%s", err.text);
    for (int t = 0; t < 6; t++)
        for (int i = 0; i < 8; i++) {
            const bool bad = t >= 1 && t <= 4;
            assert_int_equal(isnan(((float *)e.out.data)[8 * t + i]) != 0, bad);
            assert_int_equal(isnan(((float *)p.out.data)[8 * t + i]) != 0, bad && i < 4);
        }
    devices_close(&d);
    mem_free_all(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_out_of_range),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
