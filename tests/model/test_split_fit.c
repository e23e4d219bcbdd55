/* SPDX-License-Identifier: MIT
 * Models on two devices: one budget for both, how many layers fit, options that are refused. */
#include "model/split_toy.h"

#include <stdlib.h>
#include <string.h>

/* One budget bounds what is on both devices. */
static void test_budget(void **state)
{
    (void)state;
    enum { MOST = 64, BUDGET = 400000 };
    static const int32_t ids[] = {1, 2, 3};
    struct qrn_error err;
    struct qrn_device *dev = far_device_open(1, plenty), *cpu = test_device(1);
    const struct qrn_model_options o = {.path = toy_model_make(TOY_MOE),
                                        .device = dev,
                                        .host_device = cpu,
                                        .n_device_layers = 1,
                                        .budget_bytes = BUDGET};
    struct qrn_model *model = open_with(o);
    struct qrn_seq *seqs[MOST];
    int n = 0;
    for (enum qrn_status s = QRN_OK; s == QRN_OK && n < MOST; n += s == QRN_OK) {
        s = qrn_seq_create(model, NULL, &seqs[n], &err);
        if (s != QRN_OK) {
            assert_int_equal(s, QRN_ERR_LIMIT);
            break;
        }
        struct qrn_append a = {.seq = seqs[n], .tokens = ids, .n_tokens = 3};
        s = qrn_model_append(model, &a, 1, NULL, NULL, &err);
        if (s != QRN_OK) {
            assert_int_equal(s, QRN_ERR_LIMIT);
            assert_int_equal(qrn_seq_n_tokens(seqs[n]), 0);
            qrn_seq_destroy(seqs[n]);
        }
    }
    const struct qrn_pool_stats used = qrn_model_memory(model);
    assert_true(n > 1 && n < MOST);
    assert_true(used.in_use_bytes <= BUDGET && used.in_use_bytes > BUDGET / 2);
    assert_true(used.peak_bytes <= BUDGET);
    while (n > 0) qrn_seq_destroy(seqs[--n]);
    assert_int_equal(qrn_model_memory(model).in_use_bytes, 0);
    qrn_model_close(model);
    qrn_device_close(cpu);
    far_device_close(dev);
}

/* A model that does not fit is refused with the number of layers that do, and runs with that. */
static void test_fit(void **state)
{
    (void)state;
    static const int64_t rooms[] = {0, 1, 4}; /* layers that there is room for */
    enum { LAYERS = 8 };
    struct qrn_error err;
    struct qrn_device *cpu = test_device(1), *dev = far_device_open(1, plenty);
    struct qrn_model_options o = {.path = "models/fairy",
                                  .device = dev,
                                  .host_device = cpu,
                                  .max_batch = 64,
                                  .only_info = true};
    size_t needed[LAYERS + 1] = {0};
    for (int64_t n = 1; n <= LAYERS; n++) {
        o.n_device_layers = n;
        struct qrn_model *model = open_with(o);
        needed[n] = qrn_model_info(model)->device_bytes;
        assert_int_equal(qrn_model_info(model)->n_device_layers, n);
        assert_int_equal(qrn_model_info(model)->n_layers_fit, n);
        assert_true(needed[n] > needed[n - 1]);
        qrn_model_close(model);
    }
    far_device_close(dev);
    for (size_t i = 0; i < sizeof rooms / sizeof *rooms; i++) {
        const int64_t n = rooms[i];
        char want[80] = "none of its layers would fit";
        /* 9 MiB are left to work in */
        o.device = dev = far_device_open(1, n ? needed[n] + (9u << 20) : needed[1] / 2);
        o.n_device_layers = 99;
        o.only_info = true;
        struct qrn_model *model = open_with(o);
        assert_int_equal(qrn_model_info(model)->n_device_layers, LAYERS);
        assert_int_equal(qrn_model_info(model)->n_layers_fit, n);
        qrn_model_close(model);
        o.only_info = false;
        assert_int_equal(qrn_model_open(&o, &model, &err), QRN_ERR_MEMORY);
        if (n) (void)snprintf(want, sizeof want, "its last %d of 8 layers would fit", (int)n);
        if (!strstr(err.text, want)) fail_msg("%s", err.text);
        if (n) {
            o.n_device_layers = n;
            model = open_with(o);
            struct qrn_seq *seq = test_seq(model, 0);
            free(test_append_all(model, seq, (const int32_t[]){5, 6, 7}, 3, 0));
            qrn_seq_destroy(seq);
            qrn_model_close(model);
        }
        far_device_close(dev);
    }
    qrn_device_close(cpu);
}

static void expect_refusal(struct qrn_model_options o, const char *part)
{
    struct qrn_error err;
    struct qrn_model *model = NULL;
    assert_int_equal(qrn_model_open(&o, &model, &err), QRN_ERR_ARGUMENT);
    if (!strstr(err.text, part)) fail_msg("%s", err.text);
}

static void test_options(void **state)
{
    (void)state;
    struct qrn_device *dev = far_device_open(1, plenty), *cpu = test_device(1);
    struct qrn_model_options o = {
        .path = toy_model_make(TOY_DENSE), .device = dev, .host_device = dev};
    expect_refusal(o, "host_device is \"far\", whose memory the host does not reach");
    o.host_device = cpu;
    o.n_device_layers = -1;
    expect_refusal(o, "n_device_layers is -1, wants 0 or more");
    o.device = NULL;
    o.n_device_layers = 1;
    expect_refusal(o, "device is NULL");
    o.n_device_layers = 0; /* the CPU alone */
    struct qrn_model *model = open_with(o);
    assert_int_equal(qrn_model_info(model)->n_device_layers, 0);
    qrn_model_close(model);
    o.device = dev;
    o.n_device_layers = 2;
    model = open_with(o);
    assert_non_null(strstr(qrn_model_bits(model), " and from layer 1 on cpu"));
    qrn_model_close(model);
    qrn_device_close(cpu);
    far_device_close(dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_budget),
        cmocka_unit_test(test_fit),
        cmocka_unit_test(test_options),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
