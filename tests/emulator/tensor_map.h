/* SPDX-License-Identifier: MIT
 * What the emulated driver puts into a CUtensorMap. */
#ifndef QUERN_TESTS_EMULATOR_TENSOR_MAP_H
#define QUERN_TESTS_EMULATOR_TENSOR_MAP_H

#include <stdint.h>

struct emulated_map {
    const void *data;
    uint64_t dims[4], strides[3]; /* elements, bytes */
    int n_bytes, box[4];          /* of an element; elements, rows, matrices, groups of those */
};

#endif
