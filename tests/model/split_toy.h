/* SPDX-License-Identifier: MIT
 * What tests of models on two devices open. */
#ifndef QUERN_TESTS_SPLIT_TOY_H
#define QUERN_TESTS_SPLIT_TOY_H

#include <stdio.h>
#include "support/far_device.h"
#include "support/model_test.h"
#include "support/temp.h"
#include "support/toy_model.h"

/* Memory of a far device. */
static const size_t plenty = (size_t)1 << 40;

static inline struct qrn_model *open_with(struct qrn_model_options o)
{
    struct qrn_error err;
    struct qrn_model *model = NULL;
    if (qrn_model_open(&o, &model, &err) != QRN_OK) fail_msg("%s", err.text);
    return model;
}

#endif
