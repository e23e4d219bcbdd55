/* SPDX-License-Identifier: MIT
 * gdn_open_chunk where activations may be rounded to bf16, as models on a GPU let it: errors of whole
 * sequences against float64, parts that are worked on at once, batches. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/half.h"
#include "ops/gdn_sequences.h"

/* Numbers that bf16 has, as f32 or as bf16. */
static void round_tokens(struct mem *m, struct tokens *w, enum qrn_dtype dtype)
{
    struct qrn_tensor *const all[] = {&w->q, &w->k, &w->v};
    for (int i = 0; i < 3; i++) {
        const struct qrn_tensor t = mem_tensor(m, dtype, 3, all[i]->shape);
        for (int64_t j = 0; j < qrn_tensor_n_elements(&t); j++) {
            const uint16_t h = qrn_float_to_bf16(((const float *)all[i]->data)[j]);
            if (dtype == QRN_BF16)
                ((uint16_t *)t.data)[j] = h;
            else
                ((float *)t.data)[j] = qrn_bf16_to_float(h);
        }
        *all[i] = t;
    }
    w->acts = QRN_ACT_BF16;
}

/* By norms. */
static double norm_error(const struct qrn_tensor *got, const double *want, int64_t n)
{
    double errors = 0.0, squares = 0.0;
    for (int64_t i = 0; i < n; i++) {
        const double x = got->dtype == QRN_F32
                             ? (double)((const float *)got->data)[i]
                             : (double)qrn_bf16_to_float(((const uint16_t *)got->data)[i]);
        errors += (x - want[i]) * (x - want[i]);
        squares += want[i] * want[i];
    }
    return sqrt(errors / squares);
}

/* A sequence to a state three edges on, cut in several ways: chunks begin and end within calls. */
static void rounded_sequence(struct qrn_device *dev, const struct shape *z, enum decay decay,
                             enum qrn_dtype dtype)
{
    enum { T = 203, EDGE = 192 };
    static const int64_t cuts[] = {T, 70};
    struct mem m = {0};
    struct rng r = {91};
    struct tokens w = make_tokens(&m, &r, z, T, decay), exact = w;
    const int64_t shape[] = {T, z->n_v_heads, z->d_v};
    const int64_t n_out = T * z->n_v_heads * z->d_v, n_state = z->n_v_heads * z->d_k * z->d_v;
    struct qrn_tensor out = mem_tensor(&m, dtype, 3, shape);
    double *S = calloc((size_t)(n_state + n_out), sizeof *S), *want = S + n_state;
    round_tokens(&m, &exact, QRN_F32);
    round_tokens(&m, &w, dtype);
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        struct sequence s = make_sequence(&m, z, i & 1);
        start(&s, z, 3);
        for (int64_t j = 0; j < n_state; j++) S[j] = (double)s.state[0][j];
        recurrence(S, &exact, EDGE, 1.5, want);
        memset(out.data, 0xff, out.n_bytes);
        feed_to(dev, NULL, &w, &s, T, cuts[i], out);
        const struct qrn_tensor state = {.data = s.state[EDGE / C & 1], .dtype = QRN_F32};
        const double e_out = norm_error(&out, want, EDGE * z->n_v_heads * z->d_v),
                     e_state = norm_error(&state, S, n_state);
        if (!(e_out <= 6e-3 && e_state <= 6e-3))
            fail_msg("%s, %s, decay %d, calls of %" PRId64 ": out %.3g, state %.3g, 6e-3 allowed",
                     z->why, qrn_dtype_info(dtype)->name, (int)decay, cuts[i], e_out, e_state);
        recurrence(S,
                   &(struct tokens){.z = z,
                                    .q = qrn_tensor_slice(exact.q, 0, EDGE, T - EDGE),
                                    .k = qrn_tensor_slice(exact.k, 0, EDGE, T - EDGE),
                                    .v = qrn_tensor_slice(exact.v, 0, EDGE, T - EDGE),
                                    .g = qrn_tensor_slice(exact.g, 0, EDGE, T - EDGE),
                                    .beta = qrn_tensor_slice(exact.beta, 0, EDGE, T - EDGE)},
                   T - EDGE, 1.5, want);
        const struct qrn_tensor rest = qrn_tensor_slice(out, 0, EDGE, T - EDGE);
        const double e_rest = norm_error(&rest, want, (T - EDGE) * z->n_v_heads * z->d_v);
        if (!(e_rest <= 8e-3))
            fail_msg("%s, %s, calls of %" PRId64 ": behind the last edge %.3g", z->why,
                     qrn_dtype_info(dtype)->name, cuts[i], e_rest);
    }
    free(S);
    mem_free_all(&m);
}

/* One head, so long that parts of it are worked on at once; from an open chunk on, memory in place.
 * How many parts an emulated device makes of it depends on its multiprocessors. */
static void rounded_parts(const char *n_multiprocessors)
{
    enum { FROM = 40, EDGE = 66 * C, T = EDGE + 10 };
    const struct shape *z = &wide_shapes[0];
    struct devices d;
    struct mem m = {0};
    struct rng r = {13};
    setenv("QRN_EMULATED_MULTIPROCESSORS", n_multiprocessors, 1);
    devices_open_for(&d, 1, QRN_OP_gdn_open_chunk);
    unsetenv("QRN_EMULATED_MULTIPROCESSORS");
    struct qrn_device *dev = d.dev[d.n - 1];
    struct tokens w = make_tokens(&m, &r, z, T, MILD), exact = w;
    for (int64_t i = 0; i < T; i++) { /* little is forgotten: parts count in those after them */
        ((float *)w.g.data)[i] *= 0.004f;
        ((float *)w.beta.data)[i] *= 0.1f;
    }
    round_tokens(&m, &exact, QRN_F32);
    round_tokens(&m, &w, is_gpu(dev) ? QRN_BF16 : QRN_F32);
    const int64_t n_out = EDGE * z->d_v, n_state = z->d_k * z->d_v;
    struct qrn_tensor out = mem_tensor(&m, w.q.dtype, 3, (const int64_t[]){T, 1, z->d_v});
    struct sequence s = make_sequence(&m, z, true);
    double *S = calloc((size_t)(n_state + n_out), sizeof *S), *want = S + n_state;
    start(&s, z, 5);
    for (int64_t j = 0; j < n_state; j++) S[j] = (double)s.state[0][j];
    recurrence(S, &exact, EDGE, 1.5, want);
    feed(dev, NULL, &w, &s, FROM, out);
    feed(dev, NULL, &w, &s, T - FROM, out);
    const struct qrn_tensor after = {.data = s.state[EDGE / C & 1], .dtype = QRN_F32};
    const double e_out = norm_error(&out, want, n_out), e_state = norm_error(&after, S, n_state);
    if (!(e_out <= 8e-3 && e_state <= 8e-3))
        fail_msg("parts, %s multiprocessors: out %.3g, state %.3g of the norm, 8e-3 allowed",
                 n_multiprocessors, e_out, e_state);
    free(S);
    devices_close(&d);
    mem_free_all(&m);
}

static void test_rounded_parts(void **state)
{
    (void)state;
    rounded_parts("12"); /* 4 parts, which the walk takes by half their columns */
    rounded_parts("4");  /* 3, which it takes whole */
}

/* A short sequence beside a long one that is cut into parts: its last chunks, which leave their states
 * and rows in one memory, are not worked on at once (an emulated device would not show that they are).
 * Against the same one alone, whose memory is apart. */
static void test_rounded_parts_of_short(void **state)
{
    enum { LONG = 96 * C, SHORT = 2 * C + 10, TOTAL = LONG + SHORT };
    (void)state;
    const struct shape *z = &wide_shapes[0];
    struct devices d;
    struct mem m = {0};
    struct rng r = {29};
    setenv("QRN_EMULATED_MULTIPROCESSORS", "12", 1); /* 3 parts, on a GPU as well */
    devices_open_for(&d, 1, QRN_OP_gdn_open_chunk);
    unsetenv("QRN_EMULATED_MULTIPROCESSORS");
    struct qrn_device *dev = d.dev[d.n - 1];
    struct tokens w = make_tokens(&m, &r, z, TOTAL, MILD);
    round_tokens(&m, &w, is_gpu(dev) ? QRN_BF16 : QRN_F32);
    struct qrn_tensor out = mem_tensor(&m, w.q.dtype, 3, (const int64_t[]){TOTAL, 1, z->d_v});
    struct sequence first = make_sequence(&m, z, false), in_place = make_sequence(&m, z, true),
                    alone = make_sequence(&m, z, false);
    start(&first, z, 1);
    start(&in_place, z, 2);
    start(&alone, z, 2);
    struct call *both = make_call(&m), *one = make_call(&m);
    call_add(both, 0, &first, LONG);
    call_add(both, 1, &in_place, SHORT);
    call_finish(both, 2, &w, out);
    run(dev, NULL, &both->args);
    struct tokens last = w;
    struct qrn_tensor *const all[] = {&last.q, &last.k, &last.v, &last.g, &last.beta};
    for (int i = 0; i < 5; i++) *all[i] = qrn_tensor_slice(*all[i], 0, LONG, SHORT);
    call_add(one, 0, &alone, SHORT);
    call_finish(one, 1, &last, qrn_tensor_slice(out, 0, LONG, SHORT));
    run(dev, NULL, &one->args);
    const size_t u = (size_t)(C * 8 * z->n_v_heads + C * 4 * z->n_k_heads * z->d_k);
    const int64_t n_u = SHORT % C * z->d_v, n_state = z->d_k * z->d_v;
    double *want = calloc((size_t)(n_u + n_state), sizeof *want);
    for (int64_t i = 0; i < n_u; i++)
        want[i] = (double)((const float *)(const void *)((char *)alone.rows[0] + u))[i];
    for (int64_t i = 0; i < n_state; i++) want[n_u + i] = (double)alone.state[0][i];
    const struct qrn_tensor rows = {.data = (char *)in_place.rows[0] + u, .dtype = QRN_F32},
                            end = {.data = in_place.state[0], .dtype = QRN_F32};
    const double e_u = norm_error(&rows, want, n_u), e_state = norm_error(&end, want + n_u, n_state);
    if (!(e_u <= 1e-2 && e_state <= 1e-2))
        fail_msg("short beside long: u %.3g, state %.3g of the norm, 1e-2 allowed", e_u, e_state);
    free(want);
    devices_close(&d);
    mem_free_all(&m);
}

static void test_rounded_sequence(void **state)
{
    (void)state;
    struct devices d;
    devices_open_for(&d, 1, QRN_OP_gdn_open_chunk);
    struct qrn_device *dev = d.dev[d.n - 1];
    for (size_t i = 0; i < N_WIDE; i++) {
        const enum decay decay = i == 1 ? STRONG : i == 2 ? ABYSS : MILD;
        if (i % 3 == 0) rounded_sequence(dev, &wide_shapes[i], decay, QRN_F32);
        if (i < 3 && is_gpu(dev)) rounded_sequence(dev, &wide_shapes[i], decay, QRN_BF16);
    }
    devices_close(&d);
}

/* Sequences at all kinds of places in one call, the bytes around out, the same bits again; and what
 * stands in one of them stays there. */
static void rounded_batch(struct qrn_device *dev, const struct shape *z, enum qrn_dtype dtype)
{
    enum { N = 6, TOTAL = 1 + 3 + 65 + 130 + 2, WILD = 3 };
    static const int32_t positions[N] = {0, 62, 64, 127, 256, 63}; /* open rows of a run stay */
    static const int64_t lengths[N] = {1, 3, 0, 65, 130, 2};
    struct mem m = {0};
    struct rng r = {17};
    struct call *c = make_call(&m);
    struct tokens w = make_tokens(&m, &r, z, TOTAL, STRONG);
    round_tokens(&m, &w, dtype);
    for (int s = 0; s < N; s++) {
        struct sequence q = make_sequence(&m, z, false), start_of = make_sequence(&m, z, false);
        start(&start_of, z, (uint64_t)s);
        q.position = positions[s];
        fill_rows(&r, z, &q, STRONG);
        call_add(c, s, &q, lengths[s]);
        c->state[s][0] = (uintptr_t)start_of.state[0]; /* apart: every run begins alike */
    }
    const struct qrn_tensor wide =
        mem_tensor(&m, dtype, 3, (const int64_t[]){TOTAL, z->n_v_heads + 1, z->d_v});
    call_finish(c, N, &w, qrn_tensor_slice(wide, 1, 0, z->n_v_heads));
    /* rows of random keys and u: some tokens are far above the mean */
    op_test_against_reference(dev, QRN_OP_gdn_open_chunk, &c->args, 6e-2, z->why);
    if (dtype == QRN_F32) op_test_same_bits(QRN_OP_gdn_open_chunk, &c->args, z->why);
    run(dev, NULL, &c->args);
    char *before = malloc(wide.n_bytes);
    memcpy(before, wide.data, wide.n_bytes);
    const size_t value = (size_t)w.v.stride[0] * (dtype == QRN_F32 ? 4 : 2);
    memset((char *)w.v.data + value * (size_t)c->seq_begin[WILD], 0xff,
           value * (size_t)lengths[WILD]);
    run(dev, NULL, &c->args);
    const size_t row = (size_t)wide.stride[0] * (dtype == QRN_F32 ? 4 : 2);
    for (int s = 0; s < N; s++)
        if (s != WILD)
            assert_memory_equal(before + row * (size_t)c->seq_begin[s],
                                (char *)wide.data + row * (size_t)c->seq_begin[s],
                                row * (size_t)lengths[s]);
    free(before);
    mem_free_all(&m);
}

static void test_rounded_batch(void **state)
{
    (void)state;
    struct devices d;
    devices_open_for(&d, 1, QRN_OP_gdn_open_chunk);
    struct qrn_device *dev = d.dev[d.n - 1];
    for (size_t i = 0; i < 2 && is_gpu(dev); i++)
        rounded_batch(dev, &wide_shapes[2 * i], i ? QRN_BF16 : QRN_F32);
    devices_close(&d);
}

/* Value heads of key heads first .. first + n - 1, of tokens of all. */
static void run_heads(const char *n_multiprocessors, struct mem *m, const struct tokens *all,
                      const struct sequence *all_start, int64_t first, int64_t n,
                      struct qrn_tensor *out)
{
    const int64_t ratio = all->z->n_v_heads / all->z->n_k_heads, T = all->q.shape[0];
    struct shape z = *all->z;
    struct devices d;
    z.n_k_heads = n, z.n_v_heads = n * ratio;
    struct tokens w = {.z = &z,
                       .q = qrn_tensor_slice(all->q, 1, first, n),
                       .k = qrn_tensor_slice(all->k, 1, first, n),
                       .v = qrn_tensor_slice(all->v, 1, first * ratio, n * ratio),
                       .g = qrn_tensor_slice(all->g, 1, first * ratio, n * ratio),
                       .beta = qrn_tensor_slice(all->beta, 1, first * ratio, n * ratio),
                       .acts = all->acts};
    struct sequence s = make_sequence(m, &z, false);
    memcpy(s.state[0], all_start->state[0] + first * ratio * z.d_k * z.d_v, state_bytes(&z));
    *out = mem_tensor(m, QRN_BF16, 3, (const int64_t[]){T, n * ratio, z.d_v});
    setenv("QRN_EMULATED_MULTIPROCESSORS", n_multiprocessors, 1);
    devices_open_for(&d, 1, QRN_OP_gdn_open_chunk);
    unsetenv("QRN_EMULATED_MULTIPROCESSORS");
    feed(d.dev[d.n - 1], NULL, &w, &s, T, *out);
    devices_close(&d);
}

/* Where there is more to do than multiprocessors, blocks take several value heads of a key head, else one:
 * the same bits. */
static void test_rounded_heads(void **state)
{
    (void)state;
    const int64_t ratio = 7, n_k_heads = op_test_gpu_is_real() ? 32 : 2,
                  T = op_test_gpu_is_real() ? 22 * C + 5 : 3 * C + 11;
    const struct shape z = {n_k_heads, n_k_heads * ratio, 128, 128, QRN_HEADS_BLOCK, "many heads"};
    struct devices d;
    struct mem m = {0};
    struct rng r = {37};
    devices_open_for(&d, 1, QRN_OP_gdn_open_chunk);
    const bool has_gpu = is_gpu(d.dev[d.n - 1]);
    devices_close(&d);
    if (!has_gpu) skip();
    struct tokens w = make_tokens(&m, &r, &z, T, STRONG);
    round_tokens(&m, &w, QRN_BF16);
    struct sequence s = make_sequence(&m, &z, false);
    struct qrn_tensor all, some;
    start(&s, &z, 3);
    run_heads("1", &m, &w, &s, 0, n_k_heads, &all);
    for (int64_t kh = 0; kh < n_k_heads; kh += n_k_heads - 1) {
        const size_t bytes = (size_t)(ratio * z.d_v) * 2;
        run_heads("64", &m, &w, &s, kh, 1, &some);
        for (int64_t t = 0; t < T; t++)
            assert_memory_equal((const char *)all.data + bytes * (size_t)(t * n_k_heads + kh),
                                (const char *)some.data + bytes * (size_t)t, bytes);
    }
    mem_free_all(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rounded_sequence),       cmocka_unit_test(test_rounded_parts),
        cmocka_unit_test(test_rounded_parts_of_short), cmocka_unit_test(test_rounded_batch),
        cmocka_unit_test(test_rounded_heads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
