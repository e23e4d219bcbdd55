/* SPDX-License-Identifier: MIT
 * Recipes: the same type for every tensor as llama-quantize plans. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/gguf.h"
#include "formats/recipe.h"
#include "support/shared.h"

enum { MAX_TENSORS = 512 };

struct list {
    struct qrn_recipe_tensor tensors[MAX_TENSORS];
    int64_t shapes[MAX_TENSORS][4];
    size_t n;
};

static void add(struct list *list, const char *name, int n_dims, const int64_t *shape)
{
    assert_true(list->n < MAX_TENSORS);
    memcpy(list->shapes[list->n], shape, (size_t)n_dims * sizeof *shape);
    list->tensors[list->n] = (struct qrn_recipe_tensor){name, n_dims, list->shapes[list->n]};
    list->n++;
}

static void read_list(const json_t *rows, struct list *list)
{
    list->n = 0;
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        int64_t shape[4];
        const int n_dims = (int)json_array_size(row) - 1;
        for (int d = 0; d < n_dims; d++)
            shape[d] = json_integer_value(json_array_get(row, (size_t)d + 1));
        add(list, json_string_value(json_array_get(row, 0)), n_dims, shape);
    }
}

static int integer(const json_t *object, const char *key)
{
    return (int)json_integer_value(json_object_get(object, key));
}

/* Plans the list and its reverse: the order given must not matter. */
static void plan_both_ways(const char *target, bool pure, const struct qrn_recipe_model *model,
                           const struct list *list, enum qrn_dtype *dtypes)
{
    struct qrn_recipe_tensor reversed[MAX_TENSORS];
    enum qrn_dtype backward[MAX_TENSORS];
    struct qrn_error err;
    const struct qrn_recipe_target *recipe = qrn_recipe_find(target);
    if (!recipe) fail_msg("no target %s", target);
    for (size_t i = 0; i < list->n; i++) reversed[i] = list->tensors[list->n - 1 - i];
    if (qrn_recipe_plan(recipe, pure, model, list->tensors, list->n, dtypes, &err) != QRN_OK)
        fail_msg("%s: %s", target, err.text);
    assert_int_equal(qrn_recipe_plan(recipe, pure, model, reversed, list->n, backward, &err),
                     QRN_OK);
    for (size_t i = 0; i < list->n; i++)
        assert_int_equal(dtypes[i], backward[list->n - 1 - i]);
}

static size_t compare_plans(json_t *plans, bool pure, const json_t *letters,
                            const struct qrn_recipe_model *model, const struct list *list)
{
    enum qrn_dtype dtypes[MAX_TENSORS];
    const char *target;
    json_t *value;
    json_object_foreach(plans, target, value) {
        const char *plan = json_string_value(value);
        assert_int_equal(strlen(plan), list->n);
        plan_both_ways(target, pure, model, list, dtypes);
        for (size_t i = 0; i < list->n; i++) {
            const char letter[2] = {plan[i], 0};
            const char *want = json_string_value(json_object_get(letters, letter));
            const char *got = qrn_dtype_info(dtypes[i])->name;
            if (strcmp(want, got) != 0)
                fail_msg("%s%s, %d layers, %d experts: %s gets %s, should get %s", target,
                         pure ? " pure" : "", model->n_layers, model->n_experts,
                         list->tensors[i].name, got, want);
        }
    }
    return json_object_size(plans);
}

static void test_made_up_models(void **state)
{
    (void)state;
    json_t *root = json_load_file("tests/data/recipe_types.json", 0, NULL);
    const json_t *models = json_object_get(root, "models");
    const json_t *letters = json_object_get(root, "letters");
    assert_int_equal(json_array_size(models), 6);
    struct list list;
    for (size_t i = 0; i < json_array_size(models); i++) {
        const json_t *m = json_array_get(models, i);
        const struct qrn_recipe_model model = {
            .n_layers = integer(m, "n_layers"),
            .n_experts = integer(m, "n_experts"),
            .n_heads = integer(m, "n_heads"),
            .n_kv_heads = integer(m, "n_kv_heads"),
        };
        read_list(json_object_get(m, "tensors"), &list);
        assert_int_equal(compare_plans(json_object_get(m, "mixtures"), false, letters, &model,
                                       &list), 23);
        assert_int_equal(compare_plans(json_object_get(m, "pure"), true, letters, &model, &list),
                         23);
    }
    json_decref(root);
}

/* Shape of one of fairy's tensors, by its name after "blk.N.". */
static void add_fairy_tensor(struct list *list, const char *name)
{
    static const struct {
        const char *end;
        int64_t rows, columns;
    } shapes[] = {
        {"token_embd.weight", 4096, 256},  {".attn_qkv.weight", 1024, 256},
        {".attn_gate.weight", 512, 256},   {".ssm_alpha.weight", 4, 256},
        {".ssm_beta.weight", 4, 256},      {".ssm_conv1d.weight", 1024, 4},
        {".ssm_out.weight", 256, 512},     {".attn_q.weight", 2048, 256},
        {".attn_k.weight", 512, 256},      {".attn_v.weight", 512, 256},
        {".attn_output.weight", 256, 1024}, {".ffn_gate.weight", 768, 256},
        {".ffn_up.weight", 768, 256},      {".ffn_down.weight", 256, 768},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        if (strstr(name, shapes[i].end)) {
            add(list, name, 2, (const int64_t[]){shapes[i].rows, shapes[i].columns});
            return;
        }
    add(list, name, 1, (const int64_t[]){256});
}

static void test_fairy(void **state)
{
    (void)state;
    json_t *root = json_load_file("tests/data/fairy_quantised_sha256.json", 0, NULL);
    const struct qrn_recipe_model model = {.n_layers = 8, .n_heads = 4, .n_kv_heads = 2};
    enum qrn_dtype dtypes[MAX_TENSORS];
    const char *key, *name;
    json_t *tensors, *pair;
    size_t n = 0;
    json_object_foreach(json_object_get(root, "types"), key, tensors) {
        const char *word = "mixture ";
        const bool pure = strncmp(key, word, strlen(word)) != 0;
        struct list list = {.n = 0};
        json_object_foreach(tensors, name, pair) add_fairy_tensor(&list, name);
        plan_both_ways(pure ? key : key + strlen(word), pure, &model, &list, dtypes);
        size_t i = 0;
        json_object_foreach(tensors, name, pair) {
            const enum qrn_dtype want =
                qrn_dtype_from_name(json_string_value(json_array_get(pair, 0)));
            if (dtypes[i] != want)
                fail_msg("%s: %s gets %s, should get %s", key, name,
                         qrn_dtype_info(dtypes[i])->name, qrn_dtype_info(want)->name);
            i++;
        }
        n++;
    }
    assert_int_equal(n, 20);
    json_decref(root);
}

static int fact(const struct qrn_gguf *gguf, const char *key)
{
    struct qrn_span architecture;
    char full[128];
    int64_t value = 0;
    assert_true(qrn_gguf_string(gguf, "general.architecture", &architecture));
    snprintf(full, sizeof full, "%.*s.%s", (int)architecture.n_bytes, architecture.bytes, key);
    return qrn_gguf_i64(gguf, full, &value) ? (int)value : 0;
}

static int by_place(const void *a, const void *b)
{
    const struct qrn_archive_tensor *x = a, *y = b;
    return x->data < y->data ? -1 : x->data > y->data;
}

/* Files that llama-quantize wrote: their types, the order of their tensors, general.file_type. */
static void test_shared_files(void **state)
{
    (void)state;
    static const struct {
        const char *path, *target;
    } files[] = {
        {"models/gguf/fairy-Q2_K.gguf", "Q2_K"},
        {"models/gguf/fairy-Q4_0.gguf", "Q4_0"},
        {"models/gguf/fairy-Q4_K_M.gguf", "Q4_K_M"},
        {"models/gguf/fairy-Q8_0.gguf", "Q8_0"},
        {"models/gguf/moe_small-Q4_K_M.gguf", "Q4_K_M"},
        {"models/gguf/next_small-Q4_K_M.gguf", "Q4_K_M"},
    };
    if (!shared_path(files[0].path)) skip();
    for (size_t f = 0; f < sizeof files / sizeof *files; f++) {
        const struct qrn_host host = {0};
        struct qrn_gguf gguf = {0};
        struct qrn_error err;
        if (qrn_gguf_open(shared_path(files[f].path), NULL, &host, &gguf, &err) != QRN_OK)
            fail_msg("%s", err.text);
        const struct qrn_recipe_model model = {
            .n_layers = fact(&gguf, "block_count"),
            .n_experts = fact(&gguf, "expert_count"),
            .n_heads = fact(&gguf, "attention.head_count"),
            .n_kv_heads = fact(&gguf, "attention.head_count_kv"),
        };
        int64_t file_type;
        assert_true(qrn_gguf_i64(&gguf, "general.file_type", &file_type));
        assert_int_equal(qrn_recipe_find(files[f].target)->file_type, file_type);
        struct qrn_archive_tensor *tensors = gguf.archive.tensors;
        const size_t n = gguf.archive.n_tensors;
        qsort(tensors, n, sizeof *tensors, by_place);
        struct list list = {.n = 0};
        enum qrn_dtype dtypes[MAX_TENSORS];
        for (size_t i = 0; i < n; i++) {
            add(&list, tensors[i].name, tensors[i].n_dims, tensors[i].shape);
            if (i) assert_true(qrn_recipe_order(tensors[i - 1].name, tensors[i].name) < 0);
        }
        plan_both_ways(files[f].target, false, &model, &list, dtypes);
        for (size_t i = 0; i < n; i++)
            if (dtypes[i] != tensors[i].dtype)
                fail_msg("%s: %s gets %s, should get %s", files[f].path, tensors[i].name,
                         qrn_dtype_info(dtypes[i])->name, tensors[i].type_name);
        qrn_gguf_close(&gguf);
    }
}

static void test_targets(void **state)
{
    (void)state;
    assert_int_equal(qrn_recipe_find("Q4_K_M")->file_type, 15);
    assert_ptr_equal(qrn_recipe_find("q4_k"), qrn_recipe_find("Q4_K_M"));
    assert_ptr_equal(qrn_recipe_find("mxfp4"), qrn_recipe_find("MXFP4_MOE"));
    assert_int_equal(qrn_recipe_find("iq4_xs")->base, QRN_IQ4_XS);
    assert_null(qrn_recipe_find("Q4_K_XL"));
    assert_null(qrn_recipe_find(""));
    size_t n = 0;
    for (const struct qrn_recipe_target *t; (t = qrn_recipe_at(n)) != NULL; n++)
        assert_ptr_equal(qrn_recipe_find(t->name), t);
    assert_int_equal(n, 24);
}

static void test_order(void **state)
{
    (void)state;
    static const char *const sorted[] = {
        "output.weight", "token_embd.weight", "blk.0.attn_k.weight",  "blk.0.ffn_up.weight",
        "blk.2.a",       "blk.10.a",          "blk.99999999999999.a",
    };
    for (size_t i = 0; i < sizeof sorted / sizeof *sorted; i++)
        for (size_t j = 0; j < sizeof sorted / sizeof *sorted; j++) {
            const int order = qrn_recipe_order(sorted[i], sorted[j]);
            assert_true(i < j ? order < 0 : i > j ? order > 0 : order == 0);
        }
}

static void test_errors(void **state)
{
    (void)state;
    struct list list = {.n = 0};
    enum qrn_dtype dtypes[2];
    struct qrn_error err;
    const struct qrn_recipe_model moe = {.n_layers = 2, .n_experts = 4, .n_heads = 4,
                                         .n_kv_heads = 2};
    add(&list, "blk.2.ffn_down_exps.weight", 3, (const int64_t[]){4, 256, 256});
    assert_int_equal(qrn_recipe_plan(qrn_recipe_find("Q4_K_M"), false, &moe, list.tensors, list.n,
                                     dtypes, &err), QRN_ERR_ARGUMENT);
    assert_string_equal(err.text, "blk.2.ffn_down_exps.weight: layer 2 of 2");
    list.n = 0;
    add(&list, "blk.0.ffn_up.weight", 2, (const int64_t[]){256, 96});
    assert_int_equal(qrn_recipe_plan(qrn_recipe_find("Q1_0"), false, &moe, list.tensors, list.n,
                                     dtypes, &err), QRN_ERR_UNSUPPORTED);
    assert_string_equal(err.text, "blk.0.ffn_up.weight: rows of 96 are not a multiple of q1_0's "
                                  "blocks of 128, and no other type stands in for it");
    assert_int_equal(qrn_recipe_plan(qrn_recipe_find("Q1_0"), false, &moe, list.tensors, list.n,
                                     dtypes, NULL), QRN_ERR_UNSUPPORTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_made_up_models),
        cmocka_unit_test(test_fairy),
        cmocka_unit_test(test_shared_files),
        cmocka_unit_test(test_targets),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
