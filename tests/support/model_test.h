/* SPDX-License-Identifier: MIT
 * What tests of models share: opening, reference files, appending in one line, comparing. */
#ifndef TESTS_SUPPORT_MODEL_TEST_H
#define TESTS_SUPPORT_MODEL_TEST_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <quern/quern.h>
#include "formats/safetensors.h"

/* A device with n threads (0: all); tests end if it cannot be opened. */
struct qrn_device *test_device(int n_threads);
struct qrn_model *test_model(struct qrn_device *dev, const char *path, bool exact,
                             enum qrn_kv_type kv);
struct qrn_seq *test_seq(struct qrn_model *model, int max_rollback);

/* Appends n tokens, cut into calls of at most `cut` (0: one call), all logits into a fresh array
 * [n][vocab_size] that the caller frees. */
float *test_append_all(struct qrn_model *model, struct qrn_seq *seq, const int32_t *ids, int64_t n,
                       int64_t cut);

/* A tensor of a reference file; the test ends if it is absent. */
const struct qrn_archive_tensor *test_reference(const struct qrn_safetensors *st, const char *name);
const float *test_floats(const struct qrn_safetensors *st, const char *name);
const int32_t *test_ids(const struct qrn_safetensors *st, const char *name, int64_t *n);
void test_open_reference(const char *path, struct qrn_safetensors *st);

/* The largest |a - b|. */
double test_max_difference(const float *a, const float *b, int64_t n);

#endif
