/* SPDX-License-Identifier: MIT
 * What a plan says of operands: whether a step before writes them, all of them or a part.  A GPU reads those
 * that stay before the launch before has ended. */
#include "core/plan.h"
#include "support/op_test.h"

enum { N = 8, K = 32, W = 0, X = 3, OUT = 4 }; /* operands of matmul */

struct fixture {
    struct qrn_device *dev;
    struct qrn_plan plan;
    float w[2 * N * K], x[K], out[N], other[N * K];
};

static uint32_t add(struct fixture *f, enum qrn_op_id op, const void *args)
{
    struct qrn_step step = {.op = qrn_op(op), .args = args};
    assert_int_equal(qrn_kernel_choose(f->dev, op, args, &step.kernel, NULL), QRN_OK);
    assert_true(qrn_plan_add(&f->plan, f->dev, &step));
    return step.stays;
}

/* out = w x, with the matrix that begins at w. */
static uint32_t add_product(struct fixture *f, float *w)
{
    const struct qrn_matmul_args a = {.w = qrn_tensor_2d(QRN_F32, w, N, K),
                                      .x = qrn_tensor_2d(QRN_F32, f->x, 1, K),
                                      .out = qrn_tensor_2d(QRN_F32, f->out, 1, N)};
    return add(f, QRN_OP_matmul, &a);
}

static void add_copy(struct fixture *f, float *to, float *from, int64_t n)
{
    const struct qrn_copy_args a = {.x = qrn_tensor_1d(QRN_F32, from, n),
                                    .out = qrn_tensor_1d(QRN_F32, to, n)};
    add(f, QRN_OP_copy, &a);
}

static void test_operands_that_stay(void **state)
{
    static struct fixture f;
    struct qrn_error err;
    (void)state;
    f = (struct fixture){0};
    assert_int_equal(qrn_device_open(&(struct qrn_device_options){.name = "cpu"}, &f.dev, &err), QRN_OK);
    assert_int_equal(add_product(&f, f.w), 1u << W | 1u << X | 1u << OUT);
    /* The product before has written out; absent operands never stay. */
    assert_int_equal(add_product(&f, f.w), 1u << W | 1u << X);
    add_copy(&f, f.x, f.other, K);
    assert_int_equal(add_product(&f, f.w), 1u << W);
    /* The last float of the first matrix; the second one stays. */
    add_copy(&f, f.w + N * K - 1, f.other, 1);
    assert_int_equal(add_product(&f, f.w), 0);
    assert_int_equal(add_product(&f, f.w + N * K), 1u << W);
    /* Another recording. */
    qrn_plan_reset(&f.plan);
    assert_int_equal(add_product(&f, f.w), 1u << W | 1u << X | 1u << OUT);
    qrn_plan_free(&f.plan, &f.dev->host.allocator);
    qrn_device_close(f.dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_operands_that_stay)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
