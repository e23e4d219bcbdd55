/* SPDX-License-Identifier: MIT
 * The gated delta net against tensors from PyTorch: every entry, every kernel.  The error of a
 * kernel, measured against float64, is at most four times that of the plain sequential float32
 * sum. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "formats/safetensors.h"
#include "support/op_test.h"
#include "support/shared.h"

struct entries {
    struct qrn_safetensors file;
    struct qrn_device *dev;
    struct mem m;
};

/* Tensor "op.i.part" as an aligned copy; absent if there is none. */
static struct qrn_tensor entry(struct entries *e, const char *op, int i, const char *part)
{
    char name[64];
    (void)snprintf(name, sizeof name, "%s.%d.%s", op, i, part);
    const struct qrn_archive_tensor *a = qrn_archive_find(&e->file.archive, name);
    if (!a) return (struct qrn_tensor){0};
    const struct qrn_tensor t = mem_tensor(&e->m, a->dtype, a->n_dims, a->shape);
    memcpy(t.data, a->data, a->n_bytes);
    return t;
}

static struct qrn_tensor like(struct entries *e, enum qrn_dtype type, struct qrn_tensor t)
{
    return mem_tensor(&e->m, type, t.n_dims, t.shape);
}

static double error_of(struct qrn_tensor got, struct qrn_tensor want)
{
    const int64_t n = qrn_tensor_n_elements(&want);
    double worst = 0.0, squares = 0.0;
    for (int64_t i = 0; i < n; i++) {
        const double w = qrn_ref_get_flat(&want, i), d = fabs(qrn_ref_get_flat(&got, i) - w);
        if (!(d <= worst)) worst = d;
        squares += w * w;
    }
    return squares > 0.0 ? worst / sqrt(squares / (double)n) : worst;
}

/* got and plain against float64; one line, and no more than four times (or half a unit of a float
 * that is the rms: a plain sum of four terms may happen to be exact). */
static void judge(const char *kernel, const char *op, int i, const char *part,
                  struct qrn_tensor got, struct qrn_tensor plain, struct qrn_tensor want)
{
    const double e = error_of(got, want), p = error_of(plain, want);
    const double unit = 0x1p-24;
    print_message("%s.%d %-9s %-32s error %.2e, plain float32 sum %.2e\n", op, i, part, kernel, e,
                  p);
    if (!(e <= 4.0 * (p > unit ? p : unit)))
        fail_msg("%s: %.3g is more than 4 x %.3g", kernel, e, p);
}

/* What the file says is what the reference says: within float32 arithmetic. */
static void agree(const char *op, int i, const char *part, struct qrn_tensor file,
                  struct qrn_tensor want)
{
    const double e = error_of(file, want);
    if (!(e <= 5e-6)) fail_msg("%s.%d.%s: the reference is %.3g from the file", op, i, part, e);
}

static void run(struct entries *e, const struct qrn_kernel *k, const void *args)
{
    struct qrn_error err;
    if (qrn_op_check(qrn_op(k->op), args, &err) != QRN_OK ||
        qrn_kernel_run(e->dev, k, args, &err) != QRN_OK)
        fail_msg("%s: %s", k->name, err.text);
}

/* --- ssm_conv, and ssm_conv_history from position K - 1 on --- */

static void plain_conv(const struct qrn_ssm_conv_args *a)
{
    const int64_t S = a->x.shape[0], T = a->x.shape[1], C = a->x.shape[2], K = a->weight.shape[1];
    const float *x = a->x.data, *w = a->weight.data, *state = a->state_in.data;
    for (int64_t n = 0; n < S * T * C; n++) {
        const int64_t s = n / C / T, t = n / C % T, c = n % C;
        float sum = 0.0f;
        for (int64_t k = 0; k < K; k++) {
            const int64_t row = t + k - (K - 1);
            sum += w[c * K + k] *
                   (row < 0 ? state[(s * C + c) * (K - 1) + t + k] : x[(s * T + row) * C + c]);
        }
        ((float *)a->out.data)[n] = sum / (1.0f + expf(-sum));
    }
}

static void conv_history(struct entries *e, int i, const struct qrn_ssm_conv_args *a,
                         struct qrn_tensor want, struct qrn_tensor plain)
{
    enum { MAX = 8 };
    const int64_t S = a->x.shape[0], T = a->x.shape[1], C = a->x.shape[2], K = a->weight.shape[1];
    int32_t begin[MAX + 1] = {0}, position[MAX];
    uint64_t history[MAX];
    struct qrn_ssm_conv_history_args h = {.x = qrn_tensor_2d(QRN_F32, a->x.data, S * T, C),
                                          .weight = a->weight,
                                          .out = qrn_tensor_2d(QRN_F32, a->out.data, S * T, C),
                                          .n_history = K - 1,
                                          .seq_begin = qrn_tensor_1d(QRN_I32, begin, S + 1),
                                          .position = qrn_tensor_1d(QRN_I32, position, S),
                                          .history = qrn_tensor_1d(QRN_ADDRESS, history, S)};
    const struct qrn_kernel *k;
    for (size_t n = 0; (k = qrn_kernel_at(e->dev, QRN_OP_ssm_conv_history, n)) != NULL; n++) {
        for (int64_t s = 0; s < S; s++) {
            float *ring = mem_guarded(&e->m, (size_t)((K - 1) * C) * sizeof *ring);
            for (int64_t j = 0; j < (K - 1) * C; j++)
                ring[j] = ((const float *)a->state_in.data)[(s * C + j % C) * (K - 1) + j / C];
            history[s] = (uintptr_t)ring;
            begin[s + 1] = (int32_t)((s + 1) * T);
            position[s] = (int32_t)(K - 1);
        }
        memset(a->out.data, 0xff, a->out.n_bytes);
        run(e, k, &h);
        judge(k->name, "ssm_conv", i, "out", a->out, plain, want);
    }
}

static int convs(struct entries *e)
{
    int i = 0;
    for (struct qrn_tensor x; x = entry(e, "ssm_conv", i, "x"), x.n_dims; i++) {
        struct qrn_ssm_conv_args a = {.x = x, .weight = entry(e, "ssm_conv", i, "weight"),
                                      .state_in = entry(e, "ssm_conv", i, "state_in"),
                                      .state_out = entry(e, "ssm_conv", i, "state_out"),
                                      .out = entry(e, "ssm_conv", i, "out")};
        struct qrn_ssm_conv_args want = a, plain = a;
        const struct qrn_tensor file_out = a.out, file_state = a.state_out;
        want.out = like(e, QRN_F64, a.out);
        want.state_out = like(e, QRN_F64, a.state_out);
        qrn_op(QRN_OP_ssm_conv)->reference(&want);
        agree("ssm_conv", i, "out", file_out, want.out);
        agree("ssm_conv", i, "state_out", file_state, want.state_out);
        plain.out = like(e, QRN_F32, a.out);
        plain_conv(&plain);
        a.out = like(e, QRN_F32, a.out);
        a.state_out = like(e, QRN_F32, a.state_out);
        const struct qrn_kernel *k;
        for (size_t n = 0; (k = qrn_kernel_at(e->dev, QRN_OP_ssm_conv, n)) != NULL; n++) {
            memset(a.out.data, 0xff, a.out.n_bytes);
            memset(a.state_out.data, 0xff, a.state_out.n_bytes);
            run(e, k, &a);
            judge(k->name, "ssm_conv", i, "out", a.out, plain.out, want.out);
            assert_memory_equal(a.state_out.data, file_state.data, file_state.n_bytes);
        }
        conv_history(e, i, &a, want.out, plain.out);
    }
    return i;
}

/* --- gdn_gates --- */

static int gates(struct entries *e)
{
    int i = 0;
    for (struct qrn_tensor x; x = entry(e, "gdn_gates", i, "a"), x.n_dims; i++) {
        const struct qrn_tensor A_log = entry(e, "gdn_gates", i, "A_log"),
                                scale = like(e, QRN_F32, A_log);
        struct qrn_gdn_gates_args a = {.a = x, .b = entry(e, "gdn_gates", i, "b"), .a_scale = scale,
                                       .dt_bias = entry(e, "gdn_gates", i, "dt_bias"),
                                       .g = like(e, QRN_F32, x), .beta = like(e, QRN_F32, x)};
        const int64_t H = x.shape[1];
        for (int64_t h = 0; h < H; h++) ((float *)scale.data)[h] = -expf(((float *)A_log.data)[h]);
        struct qrn_gdn_gates_args want = a;
        want.g = like(e, QRN_F64, x);
        want.beta = like(e, QRN_F64, x);
        qrn_op(QRN_OP_gdn_gates)->reference(&want);
        agree("gdn_gates", i, "g", entry(e, "gdn_gates", i, "g"), want.g);
        agree("gdn_gates", i, "beta", entry(e, "gdn_gates", i, "beta"), want.beta);
        const struct qrn_tensor g = like(e, QRN_F32, x), beta = like(e, QRN_F32, x);
        for (int64_t n = 0; n < x.shape[0] * H; n++) {
            const float z = ((float *)a.a.data)[n] + ((float *)a.dt_bias.data)[n % H];
            const float softplus = z > 20.0f ? z : logf(1.0f + expf(z));
            ((float *)g.data)[n] = ((float *)scale.data)[n % H] * softplus;
            ((float *)beta.data)[n] = 1.0f / (1.0f + expf(-((float *)a.b.data)[n]));
        }
        const struct qrn_kernel *k;
        for (size_t n = 0; (k = qrn_kernel_at(e->dev, QRN_OP_gdn_gates, n)) != NULL; n++) {
            run(e, k, &a);
            judge(k->name, "gdn_gates", i, "g", a.g, g, want.g);
            judge(k->name, "gdn_gates", i, "beta", a.beta, beta, want.beta);
        }
    }
    return i;
}

/* --- gated_delta_net, gdn_open_chunk, the chunk stages --- */

struct rule {
    struct qrn_gated_delta_net_args args;
    struct qrn_tensor out, state, plain_out, plain_state; /* float64, float64, plain, plain */
};

static void plain_rule(const struct qrn_gated_delta_net_args *a)
{
    const int64_t T = a->q.shape[0], Hk = a->q.shape[1], H = a->v.shape[1], dk = a->q.shape[2],
                  dv = a->v.shape[2];
    memcpy(a->state_out.data, a->state_in.data, a->state_in.n_bytes);
    for (int64_t n = 0; n < T * H * dv; n++) {
        const int64_t t = n / dv / H, h = n / dv % H, j = n % dv;
        const float *q = (const float *)a->q.data + (t * Hk + h / (H / Hk)) * dk;
        const float *k = (const float *)a->k.data + (t * Hk + h / (H / Hk)) * dk;
        float *S = (float *)a->state_out.data + (h * dv + j) * dk, m = 0.0f, o = 0.0f;
        const float decay = expf(((const float *)a->g.data)[t * H + h]);
        for (int64_t i = 0; i < dk; i++) m += (S[i] *= decay) * k[i];
        const float d =
            ((const float *)a->beta.data)[t * H + h] * (((const float *)a->v.data)[n] - m);
        for (int64_t i = 0; i < dk; i++) o += (S[i] += d * k[i]) * q[i];
        ((float *)a->out.data)[n] = a->scale * o;
    }
}

static struct rule make_rule(struct entries *e, int i, struct qrn_tensor q)
{
    const char *op = "gated_delta_net";
    struct rule r = {.args = {.q = q, .k = entry(e, op, i, "k"), .v = entry(e, op, i, "v"),
                              .g = entry(e, op, i, "g"), .beta = entry(e, op, i, "beta"),
                              .scale = (float)(1.0 / sqrt((double)q.shape[2])),
                              .gate_sign = QRN_GATE_LOG_DECAY, .head_map = QRN_HEADS_BLOCK}};
    struct qrn_tensor state = entry(e, op, i, "state_in"),
                      file_state = entry(e, op, i, "state_out");
    for (int d = 3; d > 0; d--) { /* one sequence */
        state.shape[d] = state.shape[d - 1];
        state.stride[d] = state.stride[d - 1];
    }
    state.n_dims = 4;
    state.shape[0] = 1;
    r.args.state_in = state;
    struct qrn_gated_delta_net_args want = r.args;
    want.out = r.out = like(e, QRN_F64, r.args.v);
    want.state_out = r.state = like(e, QRN_F64, state);
    qrn_op(QRN_OP_gated_delta_net)->reference(&want);
    agree(op, i, "out", entry(e, op, i, "out"), r.out);
    agree(op, i, "state_out", file_state, r.state);
    want.out = r.plain_out = like(e, QRN_F32, r.args.v);
    want.state_out = r.plain_state = like(e, QRN_F32, state);
    plain_rule(&want);
    r.args.out = like(e, QRN_F32, r.args.v);
    r.args.state_out = like(e, QRN_F32, state);
    return r;
}

static void open_chunk(struct entries *e, int i, const struct rule *r)
{
    const struct qrn_gated_delta_net_args *p = &r->args;
    const int64_t T = p->q.shape[0], Hk = p->q.shape[1], H = p->v.shape[1], dk = p->q.shape[2],
                  dv = p->v.shape[2];
    float *S = mem_guarded(&e->m, qrn_gdn_state_bytes(H, dk, dv));
    void *rows = mem_guarded(&e->m, qrn_gdn_rows_bytes(Hk, H, dk, dv));
    const uint64_t state[3] = {(uintptr_t)S, (uintptr_t)S, (uintptr_t)S};
    const uint64_t both[2] = {(uintptr_t)rows, (uintptr_t)rows};
    const int32_t begin[] = {0, (int32_t)T}, position = 0;
    const struct qrn_gdn_open_chunk_args a = {.q = p->q,
                                              .k = p->k,
                                              .v = p->v,
                                              .g = p->g,
                                              .beta = p->beta,
                                              .out = p->out,
                                              .scale = p->scale,
                                              .head_map = p->head_map,
                                              .seq_begin = qrn_tensor_1d(QRN_I32, begin, 2),
                                              .position = qrn_tensor_1d(QRN_I32, &position, 1),
                                              .state = qrn_tensor_2d(QRN_ADDRESS, state, 1, 3),
                                              .rows = qrn_tensor_2d(QRN_ADDRESS, both, 1, 2)};
    const struct qrn_kernel *k;
    for (size_t n = 0; (k = qrn_kernel_at(e->dev, QRN_OP_gdn_open_chunk, n)) != NULL; n++) {
        for (int64_t j = 0; j < H * dk * dv; j++)
            S[j] = ((const float *)
                        p->state_in.data)[j / dk / dv * dk * dv + j % dv * dk + j / dv % dk];
        memset(rows, 0xff, qrn_gdn_rows_bytes(Hk, H, dk, dv));
        memset(a.out.data, 0xff, a.out.n_bytes);
        run(e, k, &a);
        judge(k->name, "gated_delta_net", i, "out", a.out, r->plain_out, r->out);
        if (T % QRN_GDN_CHUNK) continue; /* else the state of the end is there to be seen */
        for (int64_t j = 0; j < H * dk * dv; j++)
            ((float *)p->state_out.data)[j] = S[j / dk / dv * dk * dv + j % dk * dv + j / dk % dv];
        judge(k->name, "gated_delta_net", i, "state_out", p->state_out, r->plain_state, r->state);
    }
}

static void stages(struct entries *e, int i, const struct rule *r)
{
    const struct qrn_gated_delta_net_args *p = &r->args;
    const int64_t T = p->q.shape[0], H = p->v.shape[1], dk = p->q.shape[2], dv = p->v.shape[2];
    const int64_t A[] = {T, H, QRN_GDN_CHUNK}, keys[] = {T, H, dk};
    const int64_t h[] = {qrn_gdn_n_chunks(NULL, 1, T), H, dv, dk};
    const struct qrn_gdn_cumsum_args cumsum = {.g = p->g, .G = like(e, QRN_F64, p->g)};
    const struct qrn_gdn_kkt_args kkt = {.k = p->k,
                                         .beta = p->beta,
                                         .G = cumsum.G,
                                         .A = mem_tensor(&e->m, QRN_F32, 3, A),
                                         .head_map = p->head_map};
    const struct qrn_gdn_solve_args solve = {.A = kkt.A, .inverse = kkt.A};
    const struct qrn_gdn_recompute_wu_args wu = {.k = p->k,
                                                 .v = p->v,
                                                 .beta = p->beta,
                                                 .G = cumsum.G,
                                                 .inverse = kkt.A,
                                                 .w = mem_tensor(&e->m, QRN_F32, 3, keys),
                                                 .u = like(e, QRN_F32, p->v),
                                                 .head_map = p->head_map};
    const struct qrn_gdn_chunk_state_args state = {.k = p->k,
                                                   .w = wu.w,
                                                   .u = wu.u,
                                                   .G = cumsum.G,
                                                   .state_in = p->state_in,
                                                   .state_out = p->state_out,
                                                   .h = mem_tensor(&e->m, QRN_F32, 4, h),
                                                   .v_new = wu.u,
                                                   .head_map = p->head_map};
    const struct qrn_gdn_chunk_out_args out = {.q = p->q, .k = p->k, .v_new = wu.u, .h = state.h,
                                               .G = cumsum.G, .out = p->out, .scale = p->scale,
                                               .head_map = p->head_map};
    memset(p->out.data, 0xff, p->out.n_bytes);
    assert_int_equal(qrn_gdn_cumsum(e->dev, &cumsum, NULL), QRN_OK);
    assert_int_equal(qrn_gdn_kkt(e->dev, &kkt, NULL), QRN_OK);
    assert_int_equal(qrn_gdn_solve(e->dev, &solve, NULL), QRN_OK);
    assert_int_equal(qrn_gdn_recompute_wu(e->dev, &wu, NULL), QRN_OK);
    assert_int_equal(qrn_gdn_chunk_state(e->dev, &state, NULL), QRN_OK);
    assert_int_equal(qrn_gdn_chunk_out(e->dev, &out, NULL), QRN_OK);
    judge("chunk stages", "gated_delta_net", i, "out", p->out, r->plain_out, r->out);
    judge("chunk stages", "gated_delta_net", i, "state_out", p->state_out, r->plain_state,
          r->state);
}

static int rules(struct entries *e, int n_max)
{
    int n_found = 0;
    for (int i = 0; i < n_max; i++) {
        const struct qrn_tensor q = entry(e, "gated_delta_net", i, "q");
        if (!q.n_dims) continue;
        const struct rule r = make_rule(e, i, q);
        const struct qrn_kernel *k;
        for (size_t n = 0; (k = qrn_kernel_at(e->dev, QRN_OP_gated_delta_net, n)) != NULL; n++) {
            memset(r.args.out.data, 0xff, r.args.out.n_bytes);
            memset(r.args.state_out.data, 0xff, r.args.state_out.n_bytes);
            run(e, k, &r.args);
            judge(k->name, "gated_delta_net", i, "out", r.args.out, r.plain_out, r.out);
            judge(k->name, "gated_delta_net", i, "state_out", r.args.state_out, r.plain_state,
                  r.state);
        }
        open_chunk(e, i, &r);
        stages(e, i, &r);
        n_found++;
    }
    return n_found;
}

static void whole_file(const char *path, int n_rules)
{
    struct entries e = {0};
    struct qrn_error err;
    if (qrn_safetensors_open(path, NULL, NULL, &e.file, &err) != QRN_OK ||
        qrn_device_open(NULL, &e.dev, &err) != QRN_OK)
        fail_msg("%s", err.text);
    assert_int_equal(convs(&e), 6);
    assert_int_equal(gates(&e), 1);
    assert_int_equal(rules(&e, 8), n_rules);
    qrn_safetensors_close(&e.file);
    qrn_device_close(e.dev);
    mem_free_all(&e.m);
}

static void test_carried(void **state)
{
    (void)state;
    whole_file("tests/data/gdn_ops.safetensors", 1);
}

static void test_shared(void **state)
{
    (void)state;
    const char *path = shared_path("references/ops.safetensors");
    if (!path) skip();
    whole_file(path, 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_carried),
        cmocka_unit_test(test_shared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
