/* SPDX-License-Identifier: MIT
 * Fuzzing the tokenizer: an input that begins with '{' is a tokenizer.json, any other one is a text
 * for a small tokenizer made here. */
#include <stdlib.h>
#include <string.h>
#include <quern/text.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static void require(int condition)
{
    if (!condition) abort();
}

/* Whatever the text: it can be encoded, and comes back the same all at once and token by token. */
static void use(const struct qrn_tokenizer *t, const char *text, size_t n_bytes, unsigned flags)
{
    struct qrn_token_list ids = {0};
    struct qrn_string all = {0}, joined = {0};
    struct qrn_detokenizer *d = NULL;
    struct qrn_error err;
    const enum qrn_status status = qrn_tokenizer_encode(t, text, n_bytes, flags, &ids, &err);
    require(status == QRN_OK || (status == QRN_ERR_UNSUPPORTED && ids.n_ids == 0));
    require(qrn_tokenizer_decode(t, ids.ids, ids.n_ids, flags, &all, &err) == QRN_OK);
    require(qrn_detokenizer_create(t, flags, &d, &err) == QRN_OK);
    joined.bytes = malloc(all.n_bytes + 1);
    require(joined.bytes != NULL);
    for (size_t i = 0; i <= ids.n_ids; i++) {
        struct qrn_span piece;
        if (i < ids.n_ids)
            require(qrn_detokenizer_push(d, ids.ids[i], &piece, &err) == QRN_OK);
        else
            piece = qrn_detokenizer_finish(d);
        require(piece.n_bytes <= all.n_bytes - joined.n_bytes);
        memcpy(joined.bytes + joined.n_bytes, piece.bytes, piece.n_bytes);
        joined.n_bytes += piece.n_bytes;
    }
    require(joined.n_bytes == all.n_bytes && !memcmp(joined.bytes, all.bytes, all.n_bytes));
    free(joined.bytes);
    qrn_detokenizer_free(d);
    qrn_string_free(&all);
    qrn_token_list_free(&ids);
}

/* Every byte, some merges, tokens of each type. */
static struct qrn_tokenizer *small_tokenizer(bool is_qwen35)
{
    static const char *const more[] = {"th", "the", "ab", "aab", "aaab", ("\xc4\xa0" "a"), "<e>",
                                       "<u>", "[PAD]", "\xc3\x83\xc2\xa9"};
    static const int32_t more_types[] = {1, 1, 1, 1, 1, 1, 3, 4, 5, 1};
    static const char *const lines[] = {"t h", "th e", "a b", "a ab", "a aab", "\xc4\xa0 a",
                                        "\xc3\x83 \xc2\xa9"};
    char letters[256][2];
    struct qrn_span tokens[266], merges[7];
    int32_t types[266];
    for (unsigned b = 0, n = 0; b < 256; b++) {
        const bool prints = (b > 0x20 && b < 0x7f) || (b > 0xa0 && b != 0xad);
        const unsigned c = prints ? b : 0x100 + n++;
        letters[b][0] = (char)(c < 0x80 ? c : 0xc0 | c >> 6);
        letters[b][1] = (char)(0x80 | (c & 0x3f));
        tokens[b] = (struct qrn_span){letters[b], c < 0x80 ? 1 : 2};
        types[b] = QRN_TOKEN_NORMAL;
    }
    for (size_t i = 0; i < 10; i++) {
        tokens[256 + i] = (struct qrn_span){more[i], strlen(more[i])};
        types[256 + i] = more_types[i];
    }
    for (size_t i = 0; i < 7; i++) merges[i] = (struct qrn_span){lines[i], strlen(lines[i])};
    const struct qrn_tokenizer_tables tables = {
        .tokens = tokens, .types = types, .n_tokens = 266, .merges = merges, .n_merges = 7,
        .pre = is_qwen35 ? "qwen35" : "qwen2", .bos = -1, .eos = 262, .pad = -1,
    };
    struct qrn_tokenizer *t = NULL;
    struct qrn_error err;
    require(qrn_tokenizer_create(&tables, NULL, &t, &err) == QRN_OK);
    return t;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    static const char text[] = "the <|end|>ab \xc3\xa9 e\xcc\x81 <think>\xff'll 12\n\n";
    struct qrn_tokenizer *t = NULL;
    struct qrn_error err;
    const char *const bytes = (const char *)data;
    if (n_bytes && data[0] == '{') {
        const struct qrn_span json = {bytes, n_bytes};
        if (qrn_tokenizer_create_json(json, (struct qrn_span){0}, NULL, &t, &err) != QRN_OK)
            return 0;
        use(t, text, sizeof text - 1, 1);
        use(t, bytes, n_bytes, 0);
        qrn_tokenizer_free(t);
        return 0;
    }
    for (unsigned i = 0; i < 2; i++) {
        t = small_tokenizer(i != 0);
        use(t, bytes, n_bytes, i);
        qrn_tokenizer_free(t);
    }
    return 0;
}
