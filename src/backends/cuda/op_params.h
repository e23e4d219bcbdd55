/* SPDX-License-Identifier: MIT
 * What device code is given for ops that joints do as well. */
#ifndef QUERN_BACKENDS_CUDA_OP_PARAMS_H
#define QUERN_BACKENDS_CUDA_OP_PARAMS_H

#include <quern/ops.h>

#include "backends/cuda/gdn_gates_cuda.h"
#include "backends/cuda/kv_append_cuda.h"
#include "backends/cuda/moe_combine_cuda.h"
#include "backends/cuda/norm_cuda.h"
#include "backends/cuda/ranking_cuda.h"
#include "backends/cuda/rope_cuda.h"
#include "backends/cuda/ssm_conv_cuda.h"

struct qrn_rope_params qrn_cuda_rope_params(const struct qrn_rope_args *args);
struct qrn_kv_append_paged_params
qrn_cuda_kv_append_paged_params(const struct qrn_kv_append_paged_args *args);
struct qrn_moe_route_params qrn_cuda_moe_route_params(const struct qrn_moe_route_args *args);
struct qrn_moe_combine_params qrn_cuda_moe_combine_params(const struct qrn_moe_combine_args *args);
struct qrn_rms_norm_params qrn_cuda_rms_norm_params(const struct qrn_rms_norm_args *args);
struct qrn_gdn_gates_params qrn_cuda_gdn_gates_params(const struct qrn_gdn_gates_args *args);
/* Of cuda.ssm_conv_history.taps4, and how many blocks of QRN_CONV_THREADS it has. */
struct qrn_ssm_conv_params
qrn_cuda_ssm_conv_history_params(const struct qrn_ssm_conv_history_args *args, int64_t *n_blocks);

#endif
