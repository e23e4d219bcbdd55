/* SPDX-License-Identifier: MIT
 * Fuzz target: a safetensors file, or (input that begins with '{') the index of a sharded set whose
 * shards are all one good file with the tensors "a" and "b". */
#include <stdlib.h>
#include "../tests/support/memory_source.h"
#include "formats/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char shard[] = "\x6c\0\0\0\0\0\0\0"
                            "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
                            "\"b\":{\"dtype\":\"F16\",\"shape\":[1],\"data_offsets\":[2,4]}}  "
                            "\1\2\3\4";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const bool is_index = size && data[0] == '{';
    const struct memory_file files[] = {
        {is_index ? "model.safetensors.index.json" : "model.safetensors", data, size},
        {NULL, shard, sizeof shard - 1}};
    struct memory_source memory = {files, is_index ? 2 : 1, false, 0, false};
    const struct qrn_source source = memory_source_interface(&memory);
    struct qrn_safetensors st;
    struct qrn_error err = {0};
    if (qrn_safetensors_open_dir(NULL, &source, NULL, &st, &err) != QRN_OK) {
        if (!err.text[0]) abort();
        return 0;
    }
    volatile unsigned sum = 0;
    for (size_t i = 0; i < st.archive.n_tensors; i++)
        for (size_t k = 0; k < st.archive.tensors[i].n_bytes; k++)
            sum += st.archive.tensors[i].data[k];
    (void)sum;
    qrn_safetensors_close(&st);
    return 0;
}
