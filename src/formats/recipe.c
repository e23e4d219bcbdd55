/* SPDX-License-Identifier: MIT
 * Types for the tensors of a quantised model.  The rules are a table; the code finds a tensor's
 * role and place and looks up the first rule that holds. */
#include "formats/recipe.h"

#include <inttypes.h>
#include <string.h>
#include <strings.h>

#include "base/error.h"

/* X(NAME, general.file_type, type of most tensors), from most bits to fewest. */
#define TARGET_LIST(X)        \
    X(F32, 0, F32)            \
    X(BF16, 32, BF16)         \
    X(F16, 1, F16)            \
    X(Q8_0, 7, Q8_0)          \
    X(Q6_K, 18, Q6_K)         \
    X(Q5_K_M, 17, Q5_K)       \
    X(Q5_K_S, 16, Q5_K)       \
    X(Q5_1, 9, Q5_1)          \
    X(Q5_0, 8, Q5_0)          \
    X(Q4_K_M, 15, Q4_K)       \
    X(Q4_K_S, 14, Q4_K)       \
    X(IQ4_NL, 25, IQ4_NL)     \
    X(IQ4_XS, 30, IQ4_XS)     \
    X(Q4_1, 3, Q4_1)          \
    X(Q4_0, 2, Q4_0)          \
    X(MXFP4_MOE, 38, MXFP4)   \
    X(Q3_K_L, 13, Q3_K)       \
    X(Q3_K_M, 12, Q3_K)       \
    X(Q3_K_S, 11, Q3_K)       \
    X(Q2_K, 10, Q2_K)         \
    X(Q2_0, 41, Q2_0)         \
    X(TQ2_0, 37, TQ2_0)       \
    X(TQ1_0, 36, TQ1_0)       \
    X(Q1_0, 40, Q1_0)

enum target {
#define X(name, file_type, base) TARGET_##name,
    TARGET_LIST(X)
#undef X
    N_TARGETS
};

static const struct qrn_recipe_target targets[N_TARGETS] = {
#define X(name, file_type, base) {#name, file_type, QRN_##base},
    TARGET_LIST(X)
#undef X
};

enum role { TOKEN_EMBEDDING, OUTPUT, VALUES, KEYS, ATTENTION_OUTPUT, DOWN, OTHER };

enum condition {
    ALWAYS,
    FIRST_2,         /* of the tensors of this role */
    FIRST_4,
    FIRST_16TH,
    FIRST_8TH,
    SENSITIVE_LAYER, /* the first and last eighth, and every third between */
    GROUPS_OF_4,     /* four query heads or more share a key head */
    EXPERTS_8,       /* exactly eight experts */
};

/* The first row that holds decides; without one it is the base type. */
static const struct rule {
    enum target target;
    enum role role;
    enum condition condition;
    enum qrn_dtype dtype;
} rules[] = {
    {TARGET_Q2_K, VALUES, GROUPS_OF_4, QRN_Q4_K},
    {TARGET_Q2_K, VALUES, ALWAYS, QRN_Q3_K},
    {TARGET_Q2_K, DOWN, ALWAYS, QRN_Q3_K},
    {TARGET_Q2_K, ATTENTION_OUTPUT, EXPERTS_8, QRN_Q5_K},
    {TARGET_Q2_K, ATTENTION_OUTPUT, ALWAYS, QRN_Q3_K},
    {TARGET_Q3_K_S, ATTENTION_OUTPUT, EXPERTS_8, QRN_Q5_K},
    {TARGET_Q3_K_M, VALUES, FIRST_2, QRN_Q5_K},
    {TARGET_Q3_K_M, VALUES, ALWAYS, QRN_Q4_K},
    {TARGET_Q3_K_M, DOWN, FIRST_16TH, QRN_Q5_K},
    {TARGET_Q3_K_M, DOWN, ALWAYS, QRN_Q4_K},
    {TARGET_Q3_K_M, ATTENTION_OUTPUT, EXPERTS_8, QRN_Q5_K},
    {TARGET_Q3_K_M, ATTENTION_OUTPUT, ALWAYS, QRN_Q4_K},
    {TARGET_Q3_K_L, VALUES, ALWAYS, QRN_Q5_K},
    {TARGET_Q3_K_L, DOWN, ALWAYS, QRN_Q5_K},
    {TARGET_Q3_K_L, ATTENTION_OUTPUT, EXPERTS_8, QRN_Q3_K},
    {TARGET_Q3_K_L, ATTENTION_OUTPUT, ALWAYS, QRN_Q5_K},
    {TARGET_Q4_K_S, VALUES, FIRST_4, QRN_Q5_K},
    {TARGET_Q4_K_S, DOWN, FIRST_8TH, QRN_Q5_K},
    {TARGET_Q4_K_S, ATTENTION_OUTPUT, EXPERTS_8, QRN_Q5_K},
    {TARGET_Q4_K_M, VALUES, SENSITIVE_LAYER, QRN_Q6_K},
    {TARGET_Q4_K_M, DOWN, SENSITIVE_LAYER, QRN_Q6_K},
    {TARGET_Q4_K_M, ATTENTION_OUTPUT, EXPERTS_8, QRN_Q5_K},
    {TARGET_Q5_K_M, VALUES, SENSITIVE_LAYER, QRN_Q6_K},
    {TARGET_Q5_K_M, DOWN, SENSITIVE_LAYER, QRN_Q6_K},
    {TARGET_IQ4_NL, VALUES, GROUPS_OF_4, QRN_Q5_K},
    {TARGET_IQ4_NL, DOWN, FIRST_8TH, QRN_Q5_K},
    {TARGET_IQ4_NL, ATTENTION_OUTPUT, EXPERTS_8, QRN_Q5_K},
    {TARGET_IQ4_XS, VALUES, GROUPS_OF_4, QRN_Q5_K},
    {TARGET_IQ4_XS, DOWN, FIRST_8TH, QRN_Q5_K},
    {TARGET_IQ4_XS, ATTENTION_OUTPUT, EXPERTS_8, QRN_Q5_K},
    {TARGET_TQ1_0, TOKEN_EMBEDDING, ALWAYS, QRN_Q4_K},
    {TARGET_TQ2_0, TOKEN_EMBEDDING, ALWAYS, QRN_Q4_K},
    {TARGET_Q2_0, TOKEN_EMBEDDING, ALWAYS, QRN_Q4_K},
};

/* Which type takes over where rows are not a multiple of 256 (Q2_0: 64). */
static const struct {
    enum qrn_dtype from, to;
} fallbacks[] = {
    {QRN_IQ4_XS, QRN_IQ4_NL}, {QRN_Q2_0, QRN_Q4_0},  {QRN_Q2_K, QRN_Q4_0}, {QRN_Q3_K, QRN_Q4_0},
    {QRN_TQ1_0, QRN_Q4_0},    {QRN_TQ2_0, QRN_Q4_0}, {QRN_Q4_K, QRN_Q5_0}, {QRN_Q5_K, QRN_Q5_1},
    {QRN_Q6_K, QRN_Q8_0},
};

const struct qrn_recipe_target *qrn_recipe_at(size_t i)
{
    return i < N_TARGETS ? &targets[i] : NULL;
}

const struct qrn_recipe_target *qrn_recipe_find(const char *name)
{
    static const struct {
        const char *alias;
        enum target target;
    } aliases[] = {
        {"Q3_K", TARGET_Q3_K_M},
        {"Q4_K", TARGET_Q4_K_M},
        {"Q5_K", TARGET_Q5_K_M},
        {"MXFP4", TARGET_MXFP4_MOE},
    };
    for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++)
        if (strcasecmp(name, aliases[i].alias) == 0) return &targets[aliases[i].target];
    for (size_t i = 0; i < N_TARGETS; i++)
        if (strcasecmp(name, targets[i].name) == 0) return &targets[i];
    return NULL;
}

/* The number in "blk.12.", or -1. */
static int layer_of(const char *name)
{
    if (strncmp(name, "blk.", 4) != 0 || name[4] < '0' || name[4] > '9') return -1;
    int layer = 0;
    for (const char *p = name + 4; *p >= '0' && *p <= '9'; p++) {
        if (layer > 100000) return layer;
        layer = 10 * layer + (*p - '0');
    }
    return layer;
}

int qrn_recipe_order(const char *a, const char *b)
{
    const int layer_a = layer_of(a), layer_b = layer_of(b);
    if (layer_a != layer_b) return layer_a < layer_b ? -1 : 1;
    return strcmp(a, b);
}

static enum role role_of(const char *name)
{
    static const struct {
        const char *part;
        enum role role;
    } parts[] = {
        {"attn_qkv.weight", VALUES},
        {"attn_v.weight", VALUES},
        {"attn_k.weight", KEYS},
        {"attn_output.weight", ATTENTION_OUTPUT},
        {"ffn_down", DOWN},
    };
    if (strcmp(name, "output.weight") == 0) return OUTPUT;
    if (strcmp(name, "token_embd.weight") == 0) return TOKEN_EMBEDDING;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (strstr(name, parts[i].part)) return parts[i].role;
    return OTHER;
}

/* Leading ones are no dimensions. */
static int n_real_dims(const struct qrn_recipe_tensor *tensor)
{
    int n = tensor->n_dims;
    while (n > 0 && tensor->shape[tensor->n_dims - n] == 1) n--;
    return n;
}

bool qrn_recipe_quantises(const struct qrn_recipe_tensor *tensor)
{
    const char *name = tensor->name;
    const size_t n = strlen(name);
    return n_real_dims(tensor) >= 2 && n >= 6 && strcmp(name + n - 6, "weight") == 0 &&
           !strstr(name, "_norm.weight") && !strstr(name, "ffn_gate_inp.weight") &&
           !strstr(name, "ssm_conv1d");
}

struct place {
    int i, n; /* the i-th of n */
};

static bool holds(enum condition condition, struct place at, const struct qrn_recipe_model *model)
{
    switch (condition) {
    case ALWAYS: return true;
    case FIRST_2: return at.i < 2;
    case FIRST_4: return at.i < 4;
    case FIRST_16TH: return at.i < at.n / 16;
    case FIRST_8TH: return at.i < at.n / 8;
    case SENSITIVE_LAYER:
        return at.i < at.n / 8 || at.i >= 7 * at.n / 8 || (at.i - at.n / 8) % 3 == 2;
    case GROUPS_OF_4: return model->n_kv_heads > 0 && model->n_heads / model->n_kv_heads >= 4;
    case EXPERTS_8: return model->n_experts == 8;
    }
    return false;
}

/* Where a tensor stands among those of its role, in the order in which files are written. */
static struct place place_of(const struct qrn_recipe_tensor *tensor, enum role role,
                             const struct qrn_recipe_tensor *tensors, size_t n_tensors)
{
    struct place at = {0, 0};
    for (size_t i = 0; i < n_tensors; i++) {
        if (role_of(tensors[i].name) != role) continue;
        at.n++;
        if (qrn_recipe_order(tensors[i].name, tensor->name) < 0) at.i++;
    }
    return at;
}

static bool rows_divide(enum qrn_dtype dtype, int64_t row)
{
    return row % qrn_dtype_info(dtype)->block_elements == 0;
}

static enum qrn_status fall_back(enum qrn_dtype *dtype, const char *name, int64_t row,
                                 struct qrn_error *err)
{
    if (rows_divide(*dtype, row)) return QRN_OK;
    const struct qrn_dtype_info *info = qrn_dtype_info(*dtype);
    if (info->block_elements > 32) {
        enum qrn_dtype to = QRN_DTYPE_COUNT;
        for (size_t i = 0; i < sizeof fallbacks / sizeof *fallbacks; i++)
            if (fallbacks[i].from == *dtype) to = fallbacks[i].to;
        if (to == QRN_DTYPE_COUNT)
            return qrn_fail(err, QRN_ERR_UNSUPPORTED,
                            "%s: rows of %" PRId64 " are not a multiple of %s's blocks of %" PRId32
                            ", and no other type stands in for it",
                            name, row, info->name, info->block_elements);
        *dtype = to;
    }
    if (!rows_divide(*dtype, row)) *dtype = QRN_F16;
    return QRN_OK;
}

/* What the mixture says, before rows are looked at. */
static enum qrn_status choose(enum target target, const struct qrn_recipe_model *model,
                              const struct qrn_recipe_tensor *tensor,
                              const struct qrn_recipe_tensor *tensors, size_t n_tensors, bool tied,
                              enum qrn_dtype *dtype, struct qrn_error *err)
{
    const enum qrn_dtype base = targets[target].base;
    const enum role role = role_of(tensor->name);
    *dtype = base;
    if (role == OUTPUT || (role == TOKEN_EMBEDDING && tied)) {
        const bool fits = rows_divide(base, tensor->shape[tensor->n_dims - 1]);
        *dtype = target == TARGET_MXFP4_MOE || base == QRN_Q8_0 || !fits ? QRN_Q8_0 : QRN_Q6_K;
        return QRN_OK;
    }
    if (target == TARGET_MXFP4_MOE) {
        *dtype = n_real_dims(tensor) >= 3 ? QRN_MXFP4 : QRN_Q8_0;
        return QRN_OK;
    }
    if (model->n_experts == 8 && (role == VALUES || role == KEYS)) {
        *dtype = QRN_Q8_0;
        return QRN_OK;
    }
    struct place at = {0, 0};
    if (role == DOWN && model->n_experts > 1) {
        at = (struct place){layer_of(tensor->name), model->n_layers};
        if (at.i < 0 || at.i >= at.n)
            return qrn_fail(err, QRN_ERR_ARGUMENT, "%s: layer %d of %d", tensor->name, at.i, at.n);
    } else if (role == VALUES || role == DOWN) {
        at = place_of(tensor, role, tensors, n_tensors);
        if (role == DOWN) at.n = model->n_layers;
    }
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (rules[i].target == target && rules[i].role == role &&
            holds(rules[i].condition, at, model)) {
            *dtype = rules[i].dtype;
            break;
        }
    return QRN_OK;
}

enum qrn_status qrn_recipe_plan(const struct qrn_recipe_target *target, bool pure,
                                const struct qrn_recipe_model *model,
                                const struct qrn_recipe_tensor *tensors, size_t n_tensors,
                                enum qrn_dtype *dtypes, struct qrn_error *err)
{
    const enum target number = (enum target)(target - targets);
    const bool plain = qrn_dtype_info(target->base)->block_elements == 1;
    bool tied = true;
    for (size_t i = 0; i < n_tensors; i++)
        if (role_of(tensors[i].name) == OUTPUT) tied = false;
    for (size_t i = 0; i < n_tensors; i++) {
        const struct qrn_recipe_tensor *t = &tensors[i];
        if (!qrn_recipe_quantises(t)) {
            dtypes[i] = QRN_F32;
            continue;
        }
        dtypes[i] = target->base;
        if (plain) continue;
        if (!pure) QRN_TRY(choose(number, model, t, tensors, n_tensors, tied, &dtypes[i], err));
        QRN_TRY(fall_back(&dtypes[i], t->name, t->shape[t->n_dims - 1], err));
    }
    return QRN_OK;
}
