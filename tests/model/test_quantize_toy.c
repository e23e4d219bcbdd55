/* SPDX-License-Identifier: MIT
 * qrn_quantize on toy models: the same logits from every layout, GGUF to GGUF, split sets, sources,
 * refusals, cancelling, memory that fails. */
#include "support/model_test.h"

#include <fenv.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <quern/quantize.h>
#include "formats/blocks.h"
#include "formats/gguf.h"
#include "support/counting_allocator.h"
#include "support/memory_source.h"
#include "support/mutate.h"
#include "support/temp.h"
#include "support/toy_model.h"

static const char *const members[] = {"config.json", "model.safetensors", "tokenizer.json",
                                      "tokenizer_config.json", "chat_template.jinja"};
enum { N_MEMBERS = sizeof members / sizeof *members };

struct path {
    char text[1024];
};

static struct path temp(const char *name)
{
    struct path p;
    (void)snprintf(p.text, sizeof p.text, "%s", temp_path(name));
    return p;
}

static struct path in(const struct path *dir, const char *name)
{
    struct path p;
    (void)snprintf(p.text, sizeof p.text, "%.*s/%s", 900, dir->text, name);
    return p;
}

static bool exists(const char *path)
{
    return access(path, F_OK) == 0;
}

static void write_text(const struct path *path, const char *text)
{
    FILE *f = fopen(path->text, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static struct path make_dir(const char *name)
{
    const struct path dir = temp(name);
    assert_int_equal(mkdir(dir.text, 0700), 0);
    return dir;
}

static struct path make_toy(enum toy_kind kind)
{
    const struct path dir = make_dir("toy");
    toy_model_write(dir.text, kind);
    return dir;
}

static void remove_dir(const struct path *dir)
{
    for (size_t i = 0; i < N_MEMBERS; i++) (void)remove(in(dir, members[i]).text);
    assert_int_equal(rmdir(dir->text), 0);
}

static enum qrn_status quantise(const char *path, const char *out, const char *type,
                                struct qrn_error *err)
{
    const struct qrn_quantize_options o = {.path = path, .out_path = out, .type = type};
    return qrn_quantize(&o, err);
}

static void must_quantise(const char *path, const char *out, const char *type)
{
    struct qrn_error err;
    if (quantise(path, out, type, &err) != QRN_OK) fail_msg("%s", err.text);
}

static void must_open(const char *path, struct qrn_gguf *gguf)
{
    struct qrn_error err;
    if (qrn_gguf_open(path, NULL, NULL, gguf, &err) != QRN_OK) fail_msg("%s", err.text);
}

static void must_be_same_file(const char *a, const char *b)
{
    size_t n, m;
    void *x = read_file(a, &n), *y = read_file(b, &m);
    assert_true(x && y && n > 0);
    assert_int_equal(n, m);
    assert_memory_equal(x, y, n);
    free(x);
    free(y);
}

static void must_have_same_tensors(const struct qrn_gguf *a, const struct qrn_gguf *b)
{
    assert_int_equal(a->archive.n_tensors, b->archive.n_tensors);
    for (size_t i = 0; i < a->archive.n_tensors; i++) {
        const struct qrn_archive_tensor *x = &a->archive.tensors[i], *y = &b->archive.tensors[i];
        assert_string_equal(x->name, y->name);
        assert_int_equal(x->dtype, y->dtype);
        assert_int_equal(x->n_bytes, y->n_bytes);
        assert_memory_equal(x->data, y->data, x->n_bytes);
    }
}

/* --- the same logits from every layout --- */

enum { N_IDS = 9, VOCAB = 96 };

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

static bool ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
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

/* --- refusals --- */

static void must_fail(const struct qrn_quantize_options *o, enum qrn_status status,
                      const char *fragment)
{
    struct qrn_error err;
    const enum qrn_status s = qrn_quantize(o, &err);
    if (s != status || !strstr(err.text, fragment))
        fail_msg("status %d, text \"%s\"; should be %d with \"%s\"", s, err.text, status, fragment);
    assert_int_equal(qrn_quantize(o, NULL), status);
}

static void test_bad_options(void **state)
{
    (void)state;
    const struct path dir = make_toy(TOY_DENSE), out = temp("bad.gguf"), none = temp("none");
    struct qrn_quantize_options o = {.path = dir.text, .out_path = out.text, .type = "Q8_0"};
    must_fail(NULL, QRN_ERR_ARGUMENT, "options");
    o.path = NULL;
    must_fail(&o, QRN_ERR_ARGUMENT, "path");
    o.path = none.text;
    must_fail(&o, QRN_ERR_IO, "none");
    o.path = dir.text;
    o.out_path = NULL;
    must_fail(&o, QRN_ERR_ARGUMENT, "out_path");
    const struct path nowhere = in(&none, "x.gguf");
    o.out_path = nowhere.text;
    must_fail(&o, QRN_ERR_IO, "x.gguf");
    o.out_path = out.text;
    o.type = NULL;
    must_fail(&o, QRN_ERR_ARGUMENT, "type");
    o.type = "Q9_9";
    must_fail(&o, QRN_ERR_ARGUMENT, "\"Q9_9\"");
    o.type = "Q1_0";
    must_fail(&o, QRN_ERR_UNSUPPORTED, "multiple");
    assert_false(exists(out.text));
    remove_dir(&dir);
}

/* Under its own name, another name, or the name that it has while it is written. */
static void test_output_is_input(void **state)
{
    (void)state;
    const struct path dir = make_toy(TOY_DENSE), gguf = temp("in.gguf"), link = temp("link.gguf"),
                      copy = temp("copy.gguf"), part = temp("part.gguf.part"),
                      whole = temp("part.gguf");
    const struct path config = in(&dir, "config.json");
    static const char text[] = "is a file that is read";
    must_quantise(dir.text, gguf.text, "F16");
    must_quantise(dir.text, copy.text, "F16");
    assert_int_equal(symlink(gguf.text, link.text), 0);
    assert_int_equal(rename(copy.text, part.text), 0);
    struct qrn_quantize_options o = {.path = gguf.text, .out_path = gguf.text, .type = "Q8_0"};
    must_fail(&o, QRN_ERR_ARGUMENT, text);
    o.out_path = link.text;
    must_fail(&o, QRN_ERR_ARGUMENT, text);
    o.path = link.text;
    o.out_path = gguf.text;
    must_fail(&o, QRN_ERR_ARGUMENT, text);
    o.path = part.text;
    o.out_path = whole.text;
    must_fail(&o, QRN_ERR_ARGUMENT, text);
    o.path = dir.text;
    o.out_path = config.text;
    must_fail(&o, QRN_ERR_ARGUMENT, text);
    must_be_same_file(gguf.text, part.text); /* both still there */
    remove_dir(&dir);
}

/* Leaves a tensor out, or gives it another shape. */
static void spoil(const struct path *dir, const char *ending, bool drop)
{
    struct qrn_safetensors st;
    struct qrn_error err;
    struct qrn_archive_tensor tensors[128];
    size_t n = 0, n_hits = 0;
    const struct path weights = in(dir, "model.safetensors"),
                      spoilt = in(dir, "chat_template.jinja");
    assert_int_equal(qrn_safetensors_open(weights.text, NULL, NULL, &st, &err), QRN_OK);
    assert_true(st.archive.n_tensors <= 128);
    for (size_t i = 0; i < st.archive.n_tensors; i++) {
        tensors[n] = st.archive.tensors[i];
        const bool hit = ends_with(tensors[n].name, ending);
        n_hits += hit;
        if (hit && !drop) {
            tensors[n].shape[0] /= 2;
            tensors[n].n_bytes /= 2;
        }
        n += !(hit && drop);
    }
    assert_true(n_hits > 0);
    assert_int_equal(qrn_safetensors_write(spoilt.text, tensors, n, NULL, &err), QRN_OK);
    qrn_safetensors_close(&st);
    assert_int_equal(rename(spoilt.text, weights.text), 0);
}

static void test_bad_models(void **state)
{
    (void)state;
    static const struct {
        enum toy_kind kind;
        const char *ending;
        bool drop;
        const char *fragment;
    } cases[] = {
        {TOY_DENSE, "embed_tokens.weight", true, "embed_tokens.weight"},
        {TOY_DENSE, "embed_tokens.weight", false, "elements"},
        {TOY_DENSE, "1.self_attn.q_norm.weight", true, "q_norm.weight\" is missing"},
        {TOY_DENSE, "A_log", false, "A_log\" has 2 elements, wants 4 x 1"},
        {TOY_DENSE, "in_proj_z.weight", true, "in_proj_z.weight\" is missing"},
        {TOY_MOE, "gate_up_proj", false, "gate_up_proj\" has"},
        {TOY_MOE, "lm_head.weight", true, "lm_head.weight\" is missing"},
        {TOY_NEXT, "in_proj_qkvz.weight", false, "in_proj_qkvz.weight\" has"},
        {TOY_NEXT, "in_proj_ba.weight", true, "in_proj_b.weight\" is missing"},
        {TOY_NEXT, "experts.3.up_proj.weight", true, "experts.3.up_proj.weight\" is missing"},
    };
    const struct path out = temp("bad.gguf");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct path dir = make_toy(cases[i].kind);
        spoil(&dir, cases[i].ending, cases[i].drop);
        must_fail(
            &(struct qrn_quantize_options){.path = dir.text, .out_path = out.text, .type = "Q4_0"},
            QRN_ERR_FORMAT, cases[i].fragment);
        assert_false(exists(out.text));
        remove_dir(&dir);
    }
}

/* --- progress --- */

struct calls {
    size_t n, cancel_at; /* 0: never */
    double last;
};

static bool count_calls(void *user, double done)
{
    struct calls *c = user;
    assert_true(done > c->last && done <= 1.0);
    c->last = done;
    return ++c->n != c->cancel_at;
}

static void test_cancel(void **state)
{
    (void)state;
    const struct path dir = make_toy(TOY_DENSE), out = temp("cancel.gguf"),
                      part = temp("cancel.gguf.part");
    struct calls all = {0};
    struct qrn_quantize_options o = {.path = dir.text,
                                     .out_path = out.text,
                                     .type = "Q8_0",
                                     .progress = count_calls,
                                     .progress_user = &all};
    assert_int_equal(qrn_quantize(&o, NULL), QRN_OK);
    assert_true(all.n > 10 && all.last == 1.0);
    assert_int_equal(remove(out.text), 0);
    for (size_t at = 1; at <= all.n; at++) {
        struct calls c = {.cancel_at = at};
        struct qrn_error err;
        if (at == all.n) write_text(&out, "what was there before");
        o.progress_user = &c;
        assert_int_equal(qrn_quantize(&o, &err), QRN_ERR_CANCELLED);
        assert_non_null(strstr(err.text, "cancelled"));
        assert_int_equal(c.n, at);
        assert_false(exists(part.text));
        assert_int_equal(exists(out.text), at == all.n);
    }
    size_t n;
    char *text = read_file(out.text, &n);
    assert_string_equal(text, "what was there before");
    free(text);
    remove_dir(&dir);
}

/* --- text, and memory that fails --- */

static const char tokenizer_json[] =
    "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2, \"\\u0120\": 4, "
    "\"\\u0120ab\": 5, \"\\u00c3\\u00a9\": 6, \"\\u00c3\": 7, \"\\u00a9\": 8, \"\\u0143\": 9}, "
    "\"merges\": [[\"a\", \"b\"], \"\\u0120 ab\", [\"\\u00c3\", \"\\u00a9\"]]}, "
    "\"added_tokens\": [{\"id\": 20, \"content\": \"<|end|>\", \"special\": true}, "
    "{\"id\": 21, \"content\": \"<|fim|>\", \"special\": false}, "
    "{\"id\": 22, \"content\": \"<t \\u00e9>\", \"special\": false}], "
    "\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Split\", "
    "\"pattern\": "
    "{\"Regex\": \"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}| "
    "?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+\"}, "
    "\"behavior\": \"Isolated\", \"invert\": false}, {\"type\": \"ByteLevel\", "
    "\"add_prefix_space\": "
    "false, \"use_regex\": false}]}, \"decoder\": {\"type\": \"ByteLevel\"}}";
static const char tokenizer_config[] =
    "{\"eos_token\": \"<|end|>\", \"bos_token\": {\"content\": \"a\"}, \"model_max_length\": "
    "1000000000000000019884624838656, \"chat_template\": [{\"name\": \"tools\", \"template\": "
    "\"T\"}, "
    "{\"name\": \"default\", \"template\": \"D {{x}}\"}]}";

static void add_text_files(const struct path *dir)
{
    const struct path json = in(dir, "tokenizer.json"), config = in(dir, "tokenizer_config.json");
    write_text(&json, tokenizer_json);
    write_text(&config, tokenizer_config);
}

static struct qrn_span string_of(const struct qrn_gguf *gguf, const char *key)
{
    struct qrn_span s = {0};
    if (!qrn_gguf_string(gguf, key, &s)) fail_msg("no string %s", key);
    return s;
}

static bool is(struct qrn_span s, const char *text)
{
    return s.n_bytes == strlen(text) && memcmp(s.bytes, text, s.n_bytes) == 0;
}

/* Tokens as they are written, holes and rows beyond the vocabulary, types, merges in order, ids. */
static void test_text(void **state)
{
    (void)state;
    static const struct {
        int id;
        const char *text;
        int type;
    } tokens[] = {{0, "a", 1},
                  {2, "ab", 1},
                  {3, "[PAD3]", 5},
                  {4, "\xc4\xa0", 1},
                  {6, "\xc3\x83\xc2\xa9", 1},
                  {9, "\xc5\x83", 1},
                  {20, "<|end|>", 3},
                  {21, "<|fim|>", 3},
                  {22, "<t \xc3\xa9>", 4},
                  {23, "[PAD23]", 5},
                  {95, "[PAD95]", 5}};
    const struct path dir = make_toy(TOY_DENSE), out = temp("text.gguf");
    struct qrn_gguf gguf;
    struct qrn_span all[VOCAB], merges[3];
    int64_t id = -1;
    add_text_files(&dir);
    must_quantise(dir.text, out.text, "F16");
    must_open(out.text, &gguf);
    assert_true(is(string_of(&gguf, "tokenizer.ggml.pre"), "qwen2"));
    assert_true(is(string_of(&gguf, "tokenizer.chat_template"), "D {{x}}"));
    const struct qrn_gguf_value *list = qrn_gguf_find(&gguf, "tokenizer.ggml.tokens"),
                                *types = qrn_gguf_find(&gguf, "tokenizer.ggml.token_type"),
                                *pairs = qrn_gguf_find(&gguf, "tokenizer.ggml.merges");
    assert_int_equal(list->as.array.n, VOCAB);
    assert_true(qrn_gguf_strings(list, all, VOCAB));
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++) {
        assert_true(is(all[tokens[i].id], tokens[i].text));
        assert_true(qrn_gguf_array_i64(types, (uint64_t)tokens[i].id, &id));
        assert_int_equal(id, tokens[i].type);
    }
    assert_int_equal(pairs->as.array.n, 3);
    assert_true(qrn_gguf_strings(pairs, merges, 3));
    assert_true(is(merges[0], "a b") && is(merges[1], "\xc4\xa0 ab"));
    assert_true(is(merges[2], "\xc3\x83 \xc2\xa9"));
    assert_true(qrn_gguf_i64(&gguf, "tokenizer.ggml.eos_token_id", &id) && id == 20);
    assert_true(qrn_gguf_i64(&gguf, "tokenizer.ggml.bos_token_id", &id) && id == 0);
    assert_null(qrn_gguf_find(&gguf, "tokenizer.ggml.padding_token_id"));
    qrn_gguf_close(&gguf);
    const struct path jinja = in(&dir, "chat_template.jinja");
    write_text(&jinja, "from the file");
    must_quantise(dir.text, out.text, "F16");
    must_open(out.text, &gguf);
    assert_true(is(string_of(&gguf, "tokenizer.chat_template"), "from the file"));
    qrn_gguf_close(&gguf);
    remove_dir(&dir);
}

/* Without a tokenizer the file says so, and how many rows there are.  One that cannot be read would
 * be lost: that is refused. */
static void test_no_text(void **state)
{
    (void)state;
    const struct path dir = make_toy(TOY_MOE), out = temp("text.gguf");
    struct qrn_gguf gguf;
    int64_t rows = 0;
    must_quantise(dir.text, out.text, "F16");
    must_open(out.text, &gguf);
    assert_true(is(string_of(&gguf, "tokenizer.ggml.model"), "none"));
    assert_true(qrn_gguf_i64(&gguf, "qwen35moe.vocab_size", &rows) && rows == VOCAB);
    qrn_gguf_close(&gguf);
    const struct path json = in(&dir, "tokenizer.json");
    write_text(&json, "{\"model\": {\"type\": \"Unigram\", \"vocab\": []}}");
    must_fail(&(struct qrn_quantize_options){.path = dir.text, .out_path = out.text, .type = "F16"},
              QRN_ERR_UNSUPPORTED, "Unigram");
    remove_dir(&dir);
}

static void check_memory(const char *path, const char *type)
{
    const struct path out = temp("memory.gguf"), part = temp("memory.gguf.part");
    struct counting_allocator c;
    counting_allocator_init(&c);
    const struct qrn_host host = counting_host(&c);
    const struct qrn_quantize_options o = {
        .path = path, .out_path = out.text, .type = type, .host = host};
    size_t n = 0;
    for (size_t at = 1; n == 0; at++) {
        struct qrn_error err;
        counting_allocator_reset(&c);
        c.fail_at = at;
        const enum qrn_status s = qrn_quantize(&o, &err);
        assert_int_equal(c.live_blocks, 0);
        assert_int_equal(c.n_bad_frees, 0);
        assert_false(exists(part.text));
        if (s == QRN_OK && c.n_failed == 0) {
            n = c.n_calls;
        } else {
            if (s != QRN_ERR_MEMORY) fail_msg("allocation %zu: status %d, %s", at, s, err.text);
            assert_false(exists(out.text));
        }
    }
    assert_true(n > 20);
    assert_int_equal(remove(out.text), 0);
}

static void test_memory(void **state)
{
    (void)state;
    const struct path dir = make_toy(TOY_MOE), gguf = temp("in.gguf");
    add_text_files(&dir);
    check_memory(dir.text, "Q4_K_M");
    must_quantise(dir.text, gguf.text, "Q8_0");
    check_memory(gguf.text, "Q4_0");
    remove_dir(&dir);
}

/* Damaged files: refused, or quantised to a file that can be opened. */
static void check_damaged(const char *from,
                          void (*mutate)(struct mutate_random *, struct mutate_bytes *),
                          const struct memory_file *beside, int n_rounds)
{
    const struct path out = temp("damaged.gguf"), part = temp("damaged.gguf.part");
    struct mutate_random random = {.state = 5};
    size_t n, n_done = 0;
    void *good = read_file(from, &n);
    assert_non_null(good);
    for (int round = 0; round < n_rounds; round++) {
        struct mutate_bytes b = mutate_copy(good, n);
        mutate(&random, &b);
        const struct memory_file files[] = {
            {.name = beside ? "model.safetensors" : "x.gguf", .bytes = b.bytes, .n_bytes = b.n},
            beside ? *beside : (struct memory_file){.name = ""}};
        struct memory_source memory = {.files = files, .n_files = beside ? 2 : 1};
        const struct qrn_source source = memory_source_interface(&memory);
        const struct qrn_quantize_options o = {.source = &source,
                                               .path = beside ? NULL : "x.gguf",
                                               .out_path = out.text,
                                               .type = "Q4_K_M"};
        if (qrn_quantize(&o, NULL) == QRN_OK) {
            struct qrn_gguf gguf;
            must_open(out.text, &gguf);
            qrn_gguf_close(&gguf);
            assert_int_equal(remove(out.text), 0);
            n_done++;
        }
        assert_false(exists(out.text) || exists(part.text));
        assert_int_equal(memory.n_open, 0);
        free(b.bytes);
    }
    free(good);
    print_message("%zu of %d damaged files could be quantised\n", n_done, n_rounds);
    assert_true(n_done > 0 && n_done < (size_t)n_rounds);
}

static void test_damaged_files(void **state)
{
    (void)state;
    enum { N_ROUNDS = 500 };
    const struct path dir = make_toy(TOY_NEXT), gguf = temp("good.gguf");
    struct memory_file config = {.name = "config.json"};
    config.bytes = read_file(in(&dir, "config.json").text, &config.n_bytes);
    must_quantise(dir.text, gguf.text, "Q8_0");
    check_damaged(gguf.text, mutate_gguf, NULL, N_ROUNDS);
    check_damaged(in(&dir, "model.safetensors").text, mutate_safetensors, &config, N_ROUNDS);
    union {
        const void *in;
        void *out;
    } bytes = {.in = config.bytes};
    free(bytes.out);
    remove_dir(&dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_logits),        cmocka_unit_test(test_mlx_logits),
        cmocka_unit_test(test_gguf_to_gguf),  cmocka_unit_test(test_split_set),
        cmocka_unit_test(test_kept_tensors),  cmocka_unit_test(test_source),
        cmocka_unit_test(test_rounding_mode), cmocka_unit_test(test_types),
        cmocka_unit_test(test_bad_options),   cmocka_unit_test(test_output_is_input),
        cmocka_unit_test(test_bad_models),    cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_text),          cmocka_unit_test(test_no_text),
        cmocka_unit_test(test_memory),        cmocka_unit_test(test_damaged_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
