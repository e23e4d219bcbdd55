/* SPDX-License-Identifier: MIT
 * quern info --json, and names and sums that both forms of it show. */
#ifndef QUERN_TOOLS_INFO_JSON_H
#define QUERN_TOOLS_INFO_JSON_H

#include <quern/model.h>
#include "device_fits.h"
#include "listing.h"

/* model NULL: it cannot be run, and reason says why. */
int info_json(const struct listing *listing, const char *path, bool with_tensors,
              const struct qrn_model_info *model, const struct qrn_error *reason,
              const struct device_fit *fits, size_t n_fits);

/* "u32", "string"; GGUF's words. */
const char *gguf_type_name(enum qrn_gguf_type type);

/* What a sequence without rollback takes whatever its length. */
double sequence_state_bytes(const struct qrn_model_info *model);

#endif
