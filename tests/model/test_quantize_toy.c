/* SPDX-License-Identifier: MIT
 * qrn_quantize on toy models: the same logits from every layout, GGUF to GGUF, split sets, sources. */
#include "model/quantize_toy.h"

#include <fenv.h>
#include "formats/blocks.h"
#include "support/memory_source.h"

/* --- the same logits from every layout --- */

enum { N_IDS = 9 };

static float *logits_of(struct qrn_device *dev, const char *path)
{
    static const int32_t ids[N_IDS] = {3, 14, 15, 92, 65, 35, 89, 79, 32};
    struct qrn_model *model = test_model(dev, path, true, QRN_KV_F32);
    struct qrn_seq *seq = test_seq(model, 0);
    float *logits = test_append_all(model, seq, ids, N_IDS, 0);
    qrn_seq_destroy(seq);
    qrn_model_close(model);
    return logits;
}

/* A directory and its float32 GGUF file; heads and sums are in another order there. */
static void check_logits(const char *what, const char *dir)
{
    const struct path out = temp("logits.gguf");
    must_quantise(dir, out.text, "F32");
    struct qrn_device *dev = test_device(1);
    float *a = logits_of(dev, dir), *b = logits_of(dev, out.text);
    const double worst = test_max_difference(a, b, N_IDS * VOCAB);
    print_message("%s: max |difference| %.2g\n", what, worst);
    if (!(worst < 1e-4)) fail_msg("%s: logits differ by %g", what, worst);
    free(a);
    free(b);
    qrn_device_close(dev);
}

static void test_logits(void **state)
{
    (void)state;
    static const char *const names[] = {"dense", "experts", "next"};
    for (int kind = 0; kind < TOY_KINDS; kind++) {
        const struct path dir = make_toy((enum toy_kind)kind);
        check_logits(names[kind], dir.text);
        remove_dir(&dir);
    }
}

/* --- MLX --- */

enum { GROUP = 32, MAX_TENSORS = 512 };

struct tensor_list {
    struct qrn_archive_tensor tensors[MAX_TENSORS];
    size_t n;
};

static void list_add(struct tensor_list *l, enum qrn_dtype dtype, const char *stem,
                     const char *suffix, int n_dims, const int64_t *shape, void *data)
{
    struct qrn_archive_tensor *t = &l->tensors[l->n++];
    assert_true(l->n <= MAX_TENSORS);
    char *name = malloc(256);
    assert_non_null(name);
    (void)snprintf(name, 256, "%s%s", stem, suffix);
    size_t n = (size_t)qrn_dtype_info(dtype)->block_bytes;
    *t = (struct qrn_archive_tensor){.name = name,
                                     .dtype = dtype,
                                     .n_dims = n_dims,
                                     .data = data,
                                     .type_name = dtype == QRN_U32 ? "U32" : "F32"};
    for (int i = 0; i < n_dims; i++) n *= (size_t)(t->shape[i] = shape[i]);
    t->n_bytes = n;
}

static void list_free(struct tensor_list *l)
{
    for (size_t i = 0; i < l->n; i++) {
        union {
            const void *in;
            void *out;
        } name = {.in = l->tensors[i].name}, data = {.in = l->tensors[i].data};
        free(name.out);
        free(data.out);
    }
    free(l);
}

static float *copy_floats(const struct qrn_archive_tensor *t)
{
    float *values = malloc(t->n_bytes);
    assert_non_null(values);
    memcpy(values, t->data, t->n_bytes);
    return values;
}

/* Eight-bit codes with a scale and a bias for each group of 32. */
static void add_codes(struct tensor_list *l, const char *stem, int n_dims, const int64_t *shape,
                      const float *values, size_t n)
{
    uint8_t *codes = malloc(n);
    float *scales = malloc(n / GROUP * sizeof *scales),
          *biases = malloc(n / GROUP * sizeof *biases);
    assert_true(codes && scales && biases);
    for (size_t g = 0; g < n / GROUP; g++) {
        const float *x = values + g * GROUP;
        float low = x[0], high = x[0];
        for (int i = 1; i < GROUP; i++) {
            low = x[i] < low ? x[i] : low;
            high = x[i] > high ? x[i] : high;
        }
        scales[g] = (high - low) / 255;
        biases[g] = low;
        for (int i = 0; i < GROUP; i++)
            codes[g * GROUP + (size_t)i] = (uint8_t)((x[i] - low) / (high - low) * 255);
    }
    int64_t words[3], groups[3];
    memcpy(words, shape, sizeof *shape * (size_t)n_dims);
    memcpy(groups, shape, sizeof *shape * (size_t)n_dims);
    words[n_dims - 1] /= 4;
    groups[n_dims - 1] /= GROUP;
    list_add(l, QRN_U32, stem, ".weight", n_dims, words, codes);
    list_add(l, QRN_F32, stem, ".scales", n_dims, groups, scales);
    list_add(l, QRN_F32, stem, ".biases", n_dims, groups, biases);
}

/* One tensor of the toy as MLX stores it. */
static void add_as_mlx(struct tensor_list *l, const struct qrn_archive_tensor *t)
{
    const char *old = strncmp(t->name, "model.language_model.", 21) == 0 ? t->name + 21
                      : strncmp(t->name, "model.", 6) == 0               ? t->name + 6
                                                                         : t->name;
    char name[256];
    (void)snprintf(name, sizeof name, "language_model.%s%s", old == t->name ? "" : "model.", old);
    float *values = copy_floats(t);
    const size_t n = t->n_bytes / sizeof *values;
    const int64_t row = t->shape[t->n_dims - 1];
    if (ends_with(name, "conv1d.weight")) {
        const int64_t shape[3] = {t->shape[0], t->shape[2], 1};
        list_add(l, QRN_F32, name, "", 3, shape, values);
        return;
    }
    if (ends_with(name, "norm.weight") && !ends_with(name, "linear_attn.norm.weight"))
        for (size_t i = 0; i < n; i++) values[i] += 1;
    if (t->n_dims == 1 || row % GROUP) {
        list_add(l, QRN_F32, name, "", t->n_dims, t->shape, values);
        return;
    }
    if (ends_with(name, ".weight")) name[strlen(name) - strlen(".weight")] = '\0';
    char *experts = strstr(name, "mlp.experts.");
    if (experts) {
        char stem[256];
        (void)snprintf(stem, sizeof stem, "%.*smlp.switch_mlp.%s", (int)(experts - name), name,
                       experts + strlen("mlp.experts."));
        (void)snprintf(name, sizeof name, "%s", stem);
    }
    add_codes(l, name, t->n_dims, t->shape, values, n);
    free(values);
}

static void make_mlx(const struct path *dir)
{
    struct qrn_safetensors st;
    struct qrn_error err;
    size_t n;
    const struct path weights = in(dir, "model.safetensors"), config = in(dir, "config.json");
    struct tensor_list *l = calloc(1, sizeof *l);
    assert_non_null(l);
    assert_int_equal(qrn_safetensors_open(weights.text, NULL, NULL, &st, &err), QRN_OK);
    for (size_t i = 0; i < st.archive.n_tensors; i++) add_as_mlx(l, &st.archive.tensors[i]);
    qrn_safetensors_close(&st);
    if (qrn_safetensors_write(weights.text, l->tensors, l->n, NULL, &err) != QRN_OK)
        fail_msg("%s", err.text);
    list_free(l);
    char *text = read_file(config.text, &n);
    assert_true(text && text[n - 1] == '}');
    char *more = malloc(n + 100);
    assert_non_null(more);
    (void)snprintf(more, n + 100, "%.*s, \"quantization\": {\"group_size\": 32, \"bits\": 8}}",
                   (int)n - 1, text);
    write_text(&config, more);
    free(text);
    free(more);
}

static void test_mlx_logits(void **state)
{
    (void)state;
    for (int kind = TOY_DENSE; kind <= TOY_MOE; kind++) {
        const struct path dir = make_toy((enum toy_kind)kind);
        make_mlx(&dir);
        check_logits(kind == TOY_MOE ? "MLX, experts" : "MLX, dense", dir.text);
        remove_dir(&dir);
    }
}

/* --- GGUF to GGUF --- */

/* Writes the tensors first, first + step, ... of a file, with or without its metadata. */
struct rewriting {
    size_t first, step;
    bool with_values;
    const char *other_type; /* this tensor, of float32, becomes bf16 */
    int64_t n_blocks;       /* 0: as it was */
    int split_no, split_count;
};

static void rewrite(const struct qrn_gguf *from, const char *out, const struct rewriting *r)
{
    struct qrn_gguf_writer *w;
    struct qrn_error err;
    assert_int_equal(qrn_gguf_writer_create(out, NULL, &w, &err), QRN_OK);
    for (size_t i = 0; i < from->n_values && r->with_values; i++) {
        const struct qrn_span key = from->values[i].key;
        if (r->n_blocks && key.n_bytes == 18 && memcmp(key.bytes, "qwen35.block_count", 18) == 0)
            continue;
        qrn_gguf_write_value(w, &from->values[i]);
    }
    if (r->n_blocks) {
        qrn_gguf_write_u32(w, "qwen35.block_count", (uint32_t)r->n_blocks);
        qrn_gguf_write_u32(w, "qwen35.nextn_predict_layers", 1);
    }
    if (r->split_count) {
        qrn_gguf_write_u32(w, "split.no", (uint32_t)r->split_no);
        qrn_gguf_write_u32(w, "split.count", (uint32_t)r->split_count);
        qrn_gguf_write_u32(w, "split.tensors.count", (uint32_t)from->archive.n_tensors);
    }
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = r->first; i < from->archive.n_tensors; i += r->step) {
            const struct qrn_archive_tensor *t = &from->archive.tensors[i];
            const bool other = r->other_type && strcmp(t->name, r->other_type) == 0;
            if (pass == 0) {
                qrn_gguf_write_tensor(w, t->name, other ? QRN_BF16 : t->dtype, t->n_dims, t->shape);
            } else if (other) {
                uint8_t *bytes = malloc(t->n_bytes);
                assert_non_null(bytes);
                float *values = copy_floats(t);
                qrn_encoder(QRN_BF16)(values, bytes, t->n_bytes / 4);
                qrn_gguf_write_data(w, bytes, t->n_bytes / 2);
                free(values);
                free(bytes);
            } else {
                qrn_gguf_write_data(w, t->data, t->n_bytes);
            }
        }
        static const float block[64] = {1, 2, 3};
        static const int64_t shape[2] = {2, 32};
        if (r->n_blocks && pass == 0)
            qrn_gguf_write_tensor(w, "blk.3.nextn.eh_proj.weight", QRN_F32, 2, shape);
        else if (r->n_blocks)
            qrn_gguf_write_data(w, block, sizeof block);
    }
    if (qrn_gguf_writer_finish(w, &err) != QRN_OK) fail_msg("%s", err.text);
}

/* A second pass over a GGUF file changes nothing; one through an exact type leaves no trace. */
static void test_gguf_to_gguf(void **state)
{
    (void)state;
    const struct path dir = make_toy(TOY_MOE), f32 = temp("f32.gguf"), direct = temp("direct.gguf"),
                      via = temp("via.gguf"), again = temp("again.gguf");
    struct qrn_gguf a, b;
    must_quantise(dir.text, f32.text, "F32");
    must_quantise(dir.text, direct.text, "Q4_0");
    must_quantise(f32.text, via.text, "Q4_0");
    must_quantise(via.text, again.text, "Q4_0");
    must_be_same_file(via.text, again.text);
    must_open(direct.text, &a);
    must_open(via.text, &b);
    assert_int_equal(a.n_values, b.n_values);
    must_have_same_tensors(&a, &b);
    qrn_gguf_close(&a);
    qrn_gguf_close(&b);
    remove_dir(&dir);
}

static void test_split_set(void **state)
{
    (void)state;
    const struct path dir = make_toy(TOY_NEXT), whole = temp("whole.gguf"),
                      one = temp("set-00001-of-00002.gguf"), two = temp("set-00002-of-00002.gguf"),
                      a = temp("a.gguf"), b = temp("b.gguf");
    struct qrn_gguf gguf;
    struct qrn_error err;
    must_quantise(dir.text, whole.text, "F32");
    must_open(whole.text, &gguf);
    rewrite(&gguf, one.text, &(struct rewriting){.step = 2, .with_values = true, .split_count = 2});
    rewrite(&gguf, two.text,
            &(struct rewriting){.first = 1, .step = 2, .split_no = 1, .split_count = 2});
    qrn_gguf_close(&gguf);
    must_quantise(whole.text, a.text, "Q8_0");
    must_quantise(one.text, b.text, "Q8_0");
    must_be_same_file(a.text, b.text);
    assert_int_equal(quantise(one.text, two.text, "Q8_0", &err), QRN_ERR_ARGUMENT);
    assert_non_null(strstr(err.text, "is a file that is read"));
    remove_dir(&dir);
}

/* What is not quantised keeps its type, prediction blocks their place. */
static void test_kept_tensors(void **state)
{
    (void)state;
    const struct path dir = make_toy(TOY_DENSE), f32 = temp("f32.gguf"),
                      edited = temp("edited.gguf"), out = temp("out.gguf");
    static const char norm[] = "blk.0.attn_norm.weight", nextn[] = "blk.3.nextn.eh_proj.weight";
    struct qrn_gguf a, b;
    must_quantise(dir.text, f32.text, "F32");
    must_open(f32.text, &a);
    rewrite(&a, edited.text,
            &(struct rewriting){.step = 1, .with_values = true, .other_type = norm, .n_blocks = 4});
    qrn_gguf_close(&a);
    must_quantise(edited.text, out.text, "Q5_1");
    must_open(edited.text, &a);
    must_open(out.text, &b);
    assert_int_equal(a.archive.n_tensors, b.archive.n_tensors);
    const struct qrn_archive_tensor *x = qrn_archive_find(&a.archive, norm),
                                    *y = qrn_archive_find(&b.archive, norm);
    assert_int_equal(y->dtype, QRN_BF16);
    assert_memory_equal(x->data, y->data, x->n_bytes);
    assert_int_equal(qrn_archive_find(&b.archive, "blk.1.attn_norm.weight")->dtype, QRN_F32);
    assert_int_equal(qrn_archive_find(&b.archive, nextn)->dtype, QRN_Q5_1);
    qrn_gguf_close(&a);
    qrn_gguf_close(&b);
    remove_dir(&dir);
}

/* --- sources, modes --- */

static void test_source(void **state)
{
    (void)state;
    const struct path dir = make_toy(TOY_MOE), direct = temp("direct.gguf"),
                      out = temp("source.gguf");
    struct memory_file files[2];
    struct qrn_gguf a, b;
    must_quantise(dir.text, direct.text, "IQ4_NL");
    must_open(direct.text, &a);
    for (int i = 0; i < 2; i++) {
        files[i] = (struct memory_file){.name = members[i]};
        files[i].bytes = read_file(in(&dir, members[i]).text, &files[i].n_bytes);
        assert_non_null(files[i].bytes);
    }
    for (int copies = 0; copies < 2; copies++) {
        struct memory_source memory = {.files = files, .n_files = 2, .copies = copies};
        const struct qrn_source source = memory_source_interface(&memory);
        const struct qrn_quantize_options o = {
            .source = &source, .out_path = out.text, .type = "IQ4_NL"};
        struct qrn_error err;
        if (qrn_quantize(&o, &err) != QRN_OK) fail_msg("%s", err.text);
        assert_int_equal(memory.n_open, 0);
        assert_false(memory.misused);
        must_open(out.text, &b);
        must_have_same_tensors(&a, &b);
        qrn_gguf_close(&b);
    }
    for (int i = 0; i < 2; i++) {
        union {
            const void *in;
            void *out;
        } bytes = {.in = files[i].bytes};
        free(bytes.out);
    }
    qrn_gguf_close(&a);
    remove_dir(&dir);
}

/* The caller's rounding mode changes no byte, and is left as it was. */
static void test_rounding_mode(void **state)
{
    (void)state;
    const struct path dir = make_toy(TOY_DENSE), f32 = temp("f32.gguf"), a = temp("a.gguf"),
                      b = temp("b.gguf");
    struct qrn_gguf x, y;
    must_quantise(dir.text, f32.text, "F32");
    must_quantise(f32.text, a.text, "Q8_0");
    assert_int_equal(fesetround(FE_UPWARD), 0);
    must_quantise(f32.text, b.text, "Q8_0");
    assert_int_equal(fegetround(), FE_UPWARD);
    assert_int_equal(fesetround(FE_TONEAREST), 0);
    must_open(a.text, &x);
    must_open(b.text, &y);
    must_have_same_tensors(&x, &y);
    qrn_gguf_close(&x);
    qrn_gguf_close(&y);
    remove_dir(&dir);
}

static void test_types(void **state)
{
    (void)state;
    const struct path dir = make_toy(TOY_MOE), out = temp("type.gguf");
    size_t n = 0;
    for (const char *type; (type = qrn_quantize_type(n)) != NULL; n++) {
        struct qrn_error err;
        struct qrn_gguf gguf;
        const enum qrn_status s = quantise(dir.text, out.text, type, &err);
        if (s == QRN_ERR_UNSUPPORTED && strncmp(type, "Q1_0", 4) == 0) continue; /* rows of 32 */
        if (s != QRN_OK) fail_msg("%s: %s", type, err.text);
        must_open(out.text, &gguf);
        qrn_gguf_close(&gguf);
    }
    assert_int_equal(n, 24);
    remove_dir(&dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_logits),        cmocka_unit_test(test_mlx_logits),
        cmocka_unit_test(test_gguf_to_gguf),  cmocka_unit_test(test_split_set),
        cmocka_unit_test(test_kept_tensors),  cmocka_unit_test(test_source),
        cmocka_unit_test(test_rounding_mode), cmocka_unit_test(test_types),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
