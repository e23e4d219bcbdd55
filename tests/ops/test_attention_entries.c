/* SPDX-License-Identifier: MIT
 * attention: what PyTorch computed, next to the plain sequential float32 sums.  Without the shared
 * data: the entries that tests/data carries. */
#include <math.h>
#include <string.h>

#include "support/op_test.h"
#include "support/shared.h"
#include "support/tensor_file.h"

/* One row the plain way: float32, one sum after the other. */
static void plain_row(const float *q, const float *k, const float *v, int64_t d, int64_t begin,
                      int64_t end, float scale, float *p, float *out)
{
    float m = -INFINITY, l = 0.0f;
    for (int64_t j = begin; j < end; j++) {
        float s = 0.0f;
        for (int64_t i = 0; i < d; i++) s += q[i] * k[j * d + i];
        p[j] = s * scale;
        m = p[j] > m ? p[j] : m;
    }
    for (int64_t i = 0; i < d; i++) out[i] = 0.0f;
    for (int64_t j = begin; j < end; j++) {
        p[j] = expf(p[j] - m);
        l += p[j];
        for (int64_t i = 0; i < d; i++) out[i] += p[j] * v[j * d + i];
    }
    for (int64_t i = 0; i < d && end > begin; i++) out[i] /= l;
}

static struct qrn_tensor entry(struct mem *m, const struct tensor_file *f, int i, const char *name,
                               enum qrn_dtype type)
{
    char full[64];
    size_t n_bytes;
    int64_t shape[3] = {0};
    snprintf(full, sizeof full, "attention.%d.%s", i, name);
    const uint8_t *bytes = tensor_file_find(f, full, &n_bytes);
    assert_non_null(bytes);
    const json_t *dims = json_object_get(json_object_get(f->header, full), "shape");
    for (size_t n = 0; n < json_array_size(dims); n++)
        shape[n] = json_integer_value(json_array_get(dims, n));
    const struct qrn_tensor t = mem_tensor(m, type, (int)json_array_size(dims), shape);
    assert_int_equal(t.n_bytes, n_bytes);
    memcpy(t.data, bytes, n_bytes);
    return t;
}

static struct qrn_tensor heads_first(struct qrn_tensor t)
{
    const struct qrn_tensor u = t;
    for (int i = 0; i < 2; i++) {
        t.shape[i] = u.shape[1 - i];
        t.stride[i] = u.stride[1 - i];
    }
    return t;
}

static double worst_error(const float *got, const float *want, int64_t n)
{
    double worst = 0.0, squares = 0.0;
    for (int64_t i = 0; i < n; i++) {
        worst = fmax(worst, fabs((double)got[i] - (double)want[i]));
        squares += (double)want[i] * (double)want[i];
    }
    return worst / sqrt(squares / (double)n);
}

static void test_entries(void **state)
{
    (void)state;
    const char *path = shared_path("references/ops.safetensors");
    struct tensor_file f;
    struct devices d;
    tensor_file_open(path ? path : "tests/data/attention_goldens.safetensors", &f);
    devices_open_for(&d, 2, QRN_OP_attention);
    for (int i = path ? 0 : 4; i < 6; i++) {
        struct mem m = {0};
        const struct qrn_tensor q = entry(&m, &f, i, "q", QRN_F32),
                                k = entry(&m, &f, i, "k", QRN_F32),
                                v = entry(&m, &f, i, "v", QRN_F32),
                                want = entry(&m, &f, i, "out", QRN_F32);
        const int32_t *offset = entry(&m, &f, i, "offset", QRN_I32).data,
                      *window = entry(&m, &f, i, "window", QRN_I32).data;
        const int64_t n = qrn_tensor_n_elements(&q), width = q.shape[2];
        float *plain = mem_guarded(&m, (size_t)n * 4), *p = mem_guarded(&m, (size_t)k.shape[1] * 4);
        const struct qrn_tensor out = mem_tensor(&m, QRN_F32, 3, q.shape);
        const struct qrn_attention_args a = {
            .q = heads_first(q),
            .k = heads_first(k),
            .v = heads_first(v),
            .out = heads_first(out),
            .scale = 1.0f / sqrtf((float)width),
            .causal = true,
            .q_offset = *offset,
            .window = *window,
        };
        for (int64_t h = 0; h < q.shape[0]; h++)
            for (int64_t t = 0; t < q.shape[1]; t++) {
                const int64_t kv = h / (q.shape[0] / k.shape[0]) * k.shape[1] * width,
                              at = *offset + t;
                int64_t end = at + 1 < k.shape[1] ? at + 1 : k.shape[1];
                if (end < 0) end = 0;
                const int64_t begin = *window && at + 1 > *window ? at + 1 - *window : 0;
                plain_row((const float *)q.data + (h * q.shape[1] + t) * width,
                          (const float *)k.data + kv, (const float *)v.data + kv, width, begin, end,
                          a.scale, p, plain + (h * q.shape[1] + t) * width);
            }
        const double plain_error = worst_error(plain, want.data, n);
        for (size_t j = 0; j < d.n; j++) {
            const struct qrn_kernel *kernel;
            for (size_t c = 0; (kernel = qrn_kernel_at(d.dev[j], QRN_OP_attention, c)) != NULL;
                 c++) {
                struct qrn_error err = {0};
                if (kernel->supports && !kernel->supports(&a)) continue;
                if (qrn_kernel_run(d.dev[j], kernel, &a, &err) != QRN_OK) fail_msg("%s", err.text);
                const double error = worst_error(out.data, want.data, n);
                if (j == 0)
                    print_message("attention.%d %-24s error %.3g, plain f32 sum %.3g\n", i,
                                  kernel->name, error, plain_error);
                assert_true(error <= 4 * plain_error);
            }
        }
        mem_free_all(&m);
    }
    devices_close(&d);
    tensor_file_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_entries)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
