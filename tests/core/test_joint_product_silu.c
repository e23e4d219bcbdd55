/* SPDX-License-Identifier: MIT
 * Joints of a product of packed weights, or of bf16 ones, whose columns are gates and ups, and silu_mul of both: to the bit
 * what three launches leave in memory, or two. */
#include "support/joint_weights.h"

enum oddity {
    NONE,
    IN_PLACE, /* the middle takes the gates' place */
    OVER_X,   /* it lies where x is, which has been read by then */
    DROPS,    /* gates and ups are written by another op afterwards */
    APART,    /* so they are: no joint */
    WHOLE,   /* tiles that no launch adds up anyway: silu_mul's is another one, and none is saved */
    ROUNDED, /* to 8 bits: no joint */
    SWAPPED, /* ups come first: no joint */
    COPY     /* gates are another tensor: no joint */
};

struct row {
    enum qrn_dtype weights;
    int64_t n_rows, d, k; /* d: gates, and ups */
    enum qrn_dtype middle;
    enum oddity oddity;
    const char *n_multiprocessors, *why;
};

static const struct row rows[] = {
    {QRN_Q4_K, 64, 512, 1024, QRN_BF16, NONE, "5", "shares"},
    {QRN_Q8_0, 33, 256, 2112, QRN_BF16, NONE, "3", "a share ends where gates do, nearly"},
    {QRN_Q4_0, 7, 768, 544, QRN_F32, IN_PLACE, "4", "whole tiles, in place"},
    {QRN_Q6_K, 20, 256, 1536, QRN_BF16, NONE, "14", "parts"},
    {QRN_Q4_K, 100, 384, 512, QRN_BF16, NONE, "3", "tiles of 192"},
    {QRN_Q4_K, 100, 256, 512, QRN_BF16, ROUNDED, "3", "gates that end within such a tile"},
    {QRN_Q4_0, 9, 256, 512, QRN_BF16, WHOLE, "2", "a whole tile each"},
    {QRN_Q4_K, 20, 256, 512, QRN_Q8_ACT, ROUNDED, "3", "to 8 bits"},
    {QRN_Q4_K, 20, 128, 512, QRN_BF16, ROUNDED, "3", "half a tile of gates"},
    {QRN_Q4_K, 20, 256, 512, QRN_BF16, SWAPPED, "3", "ups first"},
    {QRN_Q4_K, 20, 256, 512, QRN_BF16, COPY, "3", "of another tensor"},
    {QRN_Q4_K, 20, 256, 256, QRN_F32, OVER_X, "3", "over x"},
    {QRN_BF16, 64, 4232, 136, QRN_BF16, NONE, "45", "bf16"},
    {QRN_BF16, 40, 4240, 200, QRN_BF16, DROPS, "67", "bf16, gates and ups dropped"},
    {QRN_BF16, 33, 4226, 72, QRN_F32, DROPS, "89", "bf16, dropped, the middle is f32"},
    {QRN_BF16, 20, 4225, 72, QRN_BF16, NONE, "7", "bf16, an odd number of gates"},
    {QRN_BF16, 17, 4250, 72, QRN_F32, IN_PLACE, "3", "bf16, in place"},
    {QRN_BF16, 17, 4352, 24, QRN_Q8_ACT, ROUNDED, "3", "bf16, to 8 bits"},
    {QRN_BF16, 17, 4250, 72, QRN_BF16, SWAPPED, "3", "bf16, ups first"},
    {QRN_BF16, 520, 64, 72, QRN_BF16, DROPS, "2", "prompts, whole tiles and halves"},
    {QRN_BF16, 513, 200, 136, QRN_BF16, DROPS, "5", "prompts, gates that end within a tile"},
    {QRN_BF16, 67, 64, 4096, QRN_BF16, DROPS, "16", "prompts, parts of k"},
    {QRN_BF16, 70, 320, 2048, QRN_BF16, DROPS, "4", "prompts, shares"},
    {QRN_BF16, 70, 100, 72, QRN_BF16, APART, "2", "prompts, gates that are no eights"},
    {QRN_BF16, 70, 128, 72, QRN_F32, APART, "2", "prompts, the middle is f32"},
    {QRN_BF16, 70, 128, 72, QRN_BF16, ROUNDED, "2", "prompts, not dropped"},
    {QRN_BF16, 70, 128, 72, QRN_BF16, SWAPPED, "2", "prompts, ups first"},
    {QRN_Q4_K, 140, 160, 2048, QRN_BF16, DROPS, "2", "packed prompts, shares"},
    {QRN_Q6_K, 300, 64, 512, QRN_BF16, DROPS, "2", "packed prompts, whole tiles"},
    {QRN_Q8_0, 129, 96, 544, QRN_BF16, DROPS, "3", "packed prompts, half a tile"},
    {QRN_Q4_K, 140, 144, 512, QRN_BF16, APART, "2",
     "packed prompts, gates that end within a group"},
};

struct call {
    struct qrn_matmul_args product;
    struct qrn_silu_mul_args silu;
    struct qrn_cast_args over; /* gates and ups; with DROPS */
};

static void record(struct joint_test *j, const void *context)
{
    const struct call *c = context;
    qrn_encode_matmul(j->enc, &c->product);
    qrn_encode_silu_mul(j->enc, &c->silu);
    if (c->over.x.n_dims) qrn_encode_cast(j->enc, &c->over);
}

/* Rows of x that are 0 but for 128 k, others for each: tiles of prompts may be cut otherwise without silu_mul, and sums of many
 * parts of k then have other bits, but not where all parts but one are 0. */
static void thin_out(struct joint_test *j, struct qrn_tensor x)
{
    enum { PART = 128 };
    const int64_t n_parts = (x.shape[1] + PART - 1) / PART;
    float *v = joint_test_at(j, x.data);
    for (int64_t r = 0; r < x.shape[0]; r++)
        for (int64_t k = 0; k < x.shape[1]; k++)
            if (k / PART != r % n_parts) v[r * x.shape[1] + k] = 0.0f;
}

static void make(struct joint_test *j, struct qrn_device *dev, const struct row *z, struct call *c)
{
    const int64_t out[] = {z->n_rows, 2 * z->d}, x[] = {z->n_rows, z->k},
                  half[] = {z->n_rows, z->d};
    c->product = (struct qrn_matmul_args){
        .w = z->weights == QRN_BF16
                 ? joint_bf16(j, 2 * z->d, z->k)
                 : joint_packed(j, dev, z->weights, 2, (const int64_t[]){2 * z->d, z->k}),
        .x = joint_test_filled(j, 1.0, 2, x),
        .out = joint_test_poison(j, QRN_F32, 2, out),
        .activation = QRN_ACT_BF16,
        .any_order = true,
        .layout = z->weights == QRN_BF16 ? QRN_LAYOUT_ROWS : QRN_LAYOUT_PACKED};
    if (z->oddity == DROPS && z->n_rows > 64) thin_out(j, c->product.x);
    const struct qrn_tensor first = qrn_tensor_slice(c->product.out, 1, 0, z->d),
                            second = qrn_tensor_slice(c->product.out, 1, z->d, z->d);
    c->silu = (struct qrn_silu_mul_args){
        .gate = first, .up = second, .drops_inputs = z->oddity == DROPS || z->oddity == APART};
    c->over = (struct qrn_cast_args){0};
    if (z->oddity == DROPS || z->oddity == APART)
        c->over =
            (struct qrn_cast_args){.x = joint_test_filled(j, 1.0, 2, out), .out = c->product.out};
    if (z->oddity == SWAPPED) c->silu.gate = second, c->silu.up = first;
    if (z->oddity == COPY) c->silu.gate = joint_test_filled(j, 1.0, 2, half);
    c->silu.out = z->oddity == IN_PLACE ? first
                  : z->oddity == OVER_X ? c->product.x
                                        : joint_test_poison(j, z->middle, 2, half);
}

static void test_rows(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct joint_test j;
        struct call c;
        struct qrn_device *dev = joint_test_open_packing(&j, i, rows[i].n_multiprocessors);
        make(&j, dev, &rows[i], &c);
        qrn_device_close(dev);
        joint_test_run(&j, record, &c, rows[i].oddity <= DROPS ? 1 : 0, rows[i].why);
        joint_test_close(&j);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
