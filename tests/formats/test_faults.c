/* SPDX-License-Identifier: MIT
 * The n-th allocation fails, for every n: an error each time, nothing left behind, and the next
 * call works. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "formats/gguf.h"
#include "formats/safetensors.h"
#include "model/config.h"
#include "support/counting_allocator.h"
#include "support/gguf_bytes.h"
#include "support/memory_source.h"
#include "support/temp.h"

/* What is tried: it leaves nothing allocated, whether it succeeds or not. */
typedef enum qrn_status (*attempt)(void *arg, const struct qrn_host *host, struct qrn_error *err);

/* Fails one call after the other until all succeed; returns how many there are. */
static size_t fail_each(attempt try, void *arg)
{
    struct counting_allocator c;
    counting_allocator_init(&c);
    const struct qrn_host host = counting_host(&c);
    size_t n = 1;
    for (;; n++) {
        struct qrn_error e = {0};
        counting_allocator_reset(&c);
        c.fail_at = n;
        const enum qrn_status s = try(arg, &host, &e);
        if (c.live_bytes)
            fail_msg("allocation %zu of %zu fails: %zu bytes left", n, c.n_calls, c.live_bytes);
        assert_int_equal(c.n_bad_frees, 0);
        if (c.n_failed == 0) {
            assert_int_equal(s, QRN_OK);
            break;
        }
        if (s != QRN_ERR_MEMORY || !e.text[0])
            fail_msg("allocation %zu fails: %s, \"%s\"", n, qrn_status_name(s), e.text);
        c.fail_at = 0;
        if (try(arg, &host, &e) != QRN_OK) fail_msg("the call after failure %zu: %s", n, e.text);
        assert_true(n < 5000);
    }
    return n - 1;
}

/* --- GGUF --- */

static enum qrn_status try_gguf(void *arg, const struct qrn_host *host, struct qrn_error *err)
{
    const struct qrn_source source = memory_source_interface(arg);
    struct memory_source *memory = arg;
    struct qrn_gguf g;
    enum qrn_status s = qrn_gguf_open(memory->files[0].name, &source, host, &g, err);
    if (s == QRN_OK) {
        struct qrn_model_config c;
        s = memory->n_files > 1 ? QRN_OK : qrn_config_from_gguf(&g, host, &c, err);
        if (s == QRN_OK && memory->n_files == 1) qrn_config_free(&c);
        qrn_gguf_close(&g);
    }
    assert_int_equal(memory->n_open, 0);
    return s;
}

static void gguf(void **state)
{
    (void)state;
    const struct gguf_bytes b = gguf_toy();
    const struct memory_file file = {"m", b.bytes, b.n};
    struct memory_source memory = {&file, 1, true, 0, false};
    assert_true(fail_each(try_gguf, &memory) >= 8);
    free(b.bytes);
}

static void gguf_set(void **state)
{
    (void)state;
    static const char *const names[] = {"x-00001-of-00002.gguf", "x-00002-of-00002.gguf"};
    struct gguf_bytes parts[2] = {0};
    struct memory_file files[2];
    for (int i = 0; i < 2; i++) {
        gguf_put_header(&parts[i], 3, 1, 2);
        gguf_put_u16(&parts[i], "split.no", (uint16_t)i);
        gguf_put_u16(&parts[i], "split.count", 2);
        gguf_put_tensor(&parts[i], i ? "b" : "a", 1, (const uint64_t[]){8}, 0, 0);
        gguf_put_data(&parts[i], 32);
        files[i] = (struct memory_file){names[i], parts[i].bytes, parts[i].n};
    }
    struct memory_source memory = {files, 2, true, 0, false};
    assert_true(fail_each(try_gguf, &memory) >= 10);
    free(parts[0].bytes);
    free(parts[1].bytes);
}

static enum qrn_status try_gguf_writer(void *arg, const struct qrn_host *host,
                                       struct qrn_error *err)
{
    struct qrn_gguf_writer *w;
    const enum qrn_status s = qrn_gguf_writer_create(arg, host, &w, err);
    if (s != QRN_OK) return s;
    char text[3000];
    memset(text, 'x', sizeof text);
    qrn_gguf_write_string(w, "long", (struct qrn_span){text, sizeof text});
    qrn_gguf_write_tensor(w, "t", QRN_F32, 1, (const int64_t[]){750});
    qrn_gguf_write_data(w, text, sizeof text);
    return qrn_gguf_writer_finish(w, err);
}

static void gguf_writer(void **state)
{
    (void)state;
    char path[2048];
    strcpy(path, temp_path("fault.gguf"));
    assert_true(fail_each(try_gguf_writer, path) >= 6);
}

/* --- safetensors --- */

#define T(name, offsets)                                                                           \
    "\"" name "\":{\"dtype\":\"F16\",\"shape\":[2,2],\"data_offsets\":[" offsets "]}"

static struct gguf_bytes make_shard(const char *header, size_t n_data)
{
    struct gguf_bytes b = {0};
    gguf_put_uint(&b, strlen(header), 8);
    gguf_put(&b, header, strlen(header));
    for (size_t i = 0; i < n_data; i++) gguf_put_uint(&b, i, 1);
    return b;
}

static enum qrn_status try_safetensors(void *arg, const struct qrn_host *host,
                                       struct qrn_error *err)
{
    struct memory_source *memory = arg;
    const struct qrn_source source = memory_source_interface(memory);
    struct qrn_safetensors st;
    const enum qrn_status s = qrn_safetensors_open_dir(NULL, &source, host, &st, err);
    if (s == QRN_OK) qrn_safetensors_close(&st);
    assert_int_equal(memory->n_open, 0);
    return s;
}

static void safetensors(void **state)
{
    (void)state;
    static const char index[] = "{\"weight_map\":{\"a\":\"s1\",\"b\":\"s1\",\"c\":\"s2\"},"
                                "\"metadata\":{\"x\":[1,\"y\",2.5]}}";
    const struct gguf_bytes s1 = make_shard("{" T("a", "0,8") "," T("b", "8,16") "}", 16);
    const struct gguf_bytes s2 =
        make_shard("{\"__metadata__\":{\"format\":\"pt\"},"
                   "\"c\":{\"dtype\":\"F4\",\"shape\":[4],\"data_offsets\":[0,2]}}",
                   2);
    const struct memory_file files[] = {{"model.safetensors.index.json", index, sizeof index - 1},
                                        {"s1", s1.bytes, s1.n},
                                        {"s2", s2.bytes, s2.n}};
    struct memory_source memory = {files, 3, true, 0, false};
    assert_true(fail_each(try_safetensors, &memory) >= 12);

    const struct memory_file single = {"model.safetensors", s1.bytes, s1.n};
    memory = (struct memory_source){&single, 1, true, 0, false};
    assert_true(fail_each(try_safetensors, &memory) >= 5);
    free(s1.bytes);
    free(s2.bytes);
}

static enum qrn_status try_safetensors_writer(void *arg, const struct qrn_host *host,
                                              struct qrn_error *err)
{
    static const uint8_t zeros[8];
    char names[40][64];
    struct qrn_archive_tensor tensors[40];
    for (int i = 0; i < 40; i++) {
        snprintf(names[i], sizeof names[i], "a.rather.long.name.of.a.tensor.%d", i);
        tensors[i] = (struct qrn_archive_tensor){.name = names[i],
                                                 .dtype = QRN_F16,
                                                 .n_dims = 1,
                                                 .shape = {4},
                                                 .data = zeros,
                                                 .n_bytes = 8};
    }
    return qrn_safetensors_write(arg, tensors, 40, host, err);
}

static void safetensors_writer(void **state)
{
    (void)state;
    char path[2048];
    strcpy(path, temp_path("fault.safetensors"));
    assert_true(fail_each(try_safetensors_writer, path) >= 4);
}

/* --- config.json --- */

static enum qrn_status try_config(void *arg, const struct qrn_host *host, struct qrn_error *err)
{
    static const char text[] =
        "{\"model_type\":\"qwen3_5\",\"eos_token_id\":[1,2],\"rope_parameters\":{\"rope_theta\":"
        "1e6,"
        "\"mrope_section\":[11,11,10],\"rope_type\":\"default\"},\"quantization\":{\"bits\":4,"
        "\"a\":{\"bits\":8},\"b\":false}}";
    static const char generation[] = "{\"eos_token_id\":3}";
    struct qrn_model_config c;
    (void)arg;
    const enum qrn_status s =
        qrn_config_from_hf(text, sizeof text - 1, generation, sizeof generation - 1, host, &c, err);
    if (s == QRN_OK) qrn_config_free(&c);
    return s;
}

static void config(void **state)
{
    (void)state;
    assert_true(fail_each(try_config, NULL) >= 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gguf),
        cmocka_unit_test(gguf_set),
        cmocka_unit_test(gguf_writer),
        cmocka_unit_test(safetensors),
        cmocka_unit_test(safetensors_writer),
        cmocka_unit_test(config),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
