/* SPDX-License-Identifier: MIT
 * Fuzz target: a GGUF file is opened, all that it promises is read, and its config is taken. */
#include <stdlib.h>
#include "../tests/support/memory_source.h"
#include "formats/gguf.h"
#include "model/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static unsigned read_gguf(const struct qrn_gguf *g)
{
    unsigned sum = 0;
    for (size_t i = 0; i < g->archive.n_tensors; i++)
        for (size_t k = 0; k < g->archive.tensors[i].n_bytes; k++)
            sum += g->archive.tensors[i].data[k];
    for (size_t i = 0; i < g->n_values; i++) {
        const struct qrn_gguf_value *v = &g->values[i];
        int64_t number;
        struct qrn_span first;
        if (v->type != QRN_GGUF_ARRAY || v->as.array.n == 0) continue;
        if (qrn_gguf_array_i64(v, v->as.array.n - 1, &number)) sum += (unsigned)number;
        if (qrn_gguf_strings(v, &first, 1) && first.n_bytes) sum += (unsigned char)first.bytes[0];
    }
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    /* Every part of a split set is the input itself: sets are followed, and refused. */
    const struct memory_file file = {NULL, data, size};
    struct memory_source memory = {&file, 1, false, 0, false};
    const struct qrn_source source = memory_source_interface(&memory);
    struct qrn_gguf g;
    struct qrn_model_config config;
    struct qrn_error err = {0};
    if (qrn_gguf_open("m-00001-of-00002.gguf", &source, NULL, &g, &err) != QRN_OK) {
        if (!err.text[0]) abort();
        return 0;
    }
    volatile unsigned sum = read_gguf(&g);
    (void)sum;
    if (qrn_config_from_gguf(&g, NULL, &config, &err) == QRN_OK)
        qrn_config_free(&config);
    else if (!err.text[0])
        abort();
    qrn_gguf_close(&g);
    return 0;
}
