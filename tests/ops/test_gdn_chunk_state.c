/* SPDX-License-Identifier: MIT
 * gdn_chunk_state: against the reference; in place. */
#include <math.h>
#include <string.h>

#include "support/gdn_stages.h"

static void test_reference(void **state)
{
    (void)state;
    /* bf16: half a unit in 8 bits of values up to a few times the rms */
    stages_test(QRN_OP_gdn_chunk_state, offsetof(struct stages, state), 5e-6, 6e-2);
}

static void test_in_place(void **state)
{
    (void)state;
    struct devices d;
    devices_open_for(&d, 2, QRN_OP_gdn_chunk_state);
    for (size_t i = 0; i < n_stages_cases; i++) {
        struct mem m = {0};
        struct stages s;
        stages_make(&s, &m, &stages_cases[i], i);
        stages_run(&s, d.dev[0]);
        s.state.state_out = s.state.state_in;
        s.state.v_new = s.state.u;
        for (size_t j = 0; j < d.n; j++)
            op_test_against_reference(d.dev[j], QRN_OP_gdn_chunk_state, &s.state,
                                      stages_cases[i].type == QRN_F32 ? 5e-6 : 6e-2, "in place");
        mem_free_all(&m);
    }
    devices_close(&d);
}

static void test_errors(void **state)
{
    (void)state;
    struct mem m = {0};
    struct stages s;
    struct qrn_device *dev;
    assert_int_equal(qrn_device_open(NULL, &dev, NULL), QRN_OK);
    stages_make(&s, &m, &stages_cases[2], 1);
    struct qrn_gdn_chunk_state_args a = s.state;
#define FAILS(status, text)                                       \
    op_test_fails(dev, QRN_OP_gdn_chunk_state, &a, status, text); \
    a = s.state
    a.h.n_dims = 0;
    FAILS(QRN_ERR_ARGUMENT, "gdn_chunk_state: h is missing");
    a.w.dtype = QRN_BF16;
    FAILS(QRN_ERR_DTYPE, "w is bf16, wants f32");
    a.u.shape[0] = 100;
    FAILS(QRN_ERR_SHAPE, "u.shape[0] is 100, wants 200");
    a.w.shape[2] = 47;
    FAILS(QRN_ERR_SHAPE, "w.shape[2] is 47, wants 48");
    a.v_new.shape[1] = 1;
    FAILS(QRN_ERR_SHAPE, "v_new.shape[1] is 1, wants 2");
    a.state_in.dtype = QRN_BF16;
    FAILS(QRN_ERR_DTYPE, "state_in is bf16, wants f32");
    a.state_in.shape[3] = 32;
    FAILS(QRN_ERR_SHAPE, "state_in.shape[3] is 32, wants 48");
    a.state_out.shape[0] = 1;
    FAILS(QRN_ERR_SHAPE, "state_out.shape[0] is 1, wants 4 (that of state_in)");
    a.h.shape[3] = 47;
    FAILS(QRN_ERR_SHAPE, "h.shape[3] is 47, wants 48");
    a.h.shape[0] = 4;
    FAILS(QRN_ERR_SHAPE, "h.shape[0] is 4, wants the 5 chunks or more");
    a.G.shape[0] = 100;
    FAILS(QRN_ERR_SHAPE, "G.shape[0] is 100, wants 200");
    a.state_out = a.state_in;
    a.state_out.data = (float *)a.state_in.data - 1;
    FAILS(QRN_ERR_ARGUMENT, "state_out overlaps state_in");
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
        cmocka_unit_test(test_in_place),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
