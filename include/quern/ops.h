/* SPDX-License-Identifier: MIT
 * Every op: a struct of named arguments with its contract, and two functions.
 *
 *     enum qrn_status qrn_<op>(struct qrn_device *, const struct qrn_<op>_args *, struct qrn_error *);
 *         checks, runs, returns when done;
 *     void qrn_encode_<op>(struct qrn_encoder *, const struct qrn_<op>_args *);
 *         checks, chooses a kernel, copies the arguments: run by qrn_encoder_submit.
 *
 * For all ops: tensors are float32 unless said; the last dimension is contiguous, the others may be
 * strided; empty tensors are allowed unless said, and do nothing.  A tensor that is written shares
 * no memory with another argument unless the op says that it may be the same view; other columns of
 * one matrix are other memory.  Statuses:
 * QRN_ERR_ARGUMENT (missing tensor, overlap, number out of range), QRN_ERR_SHAPE, QRN_ERR_DTYPE,
 * QRN_ERR_UNSUPPORTED, QRN_ERR_MEMORY; the text says which argument, its value, and what is wanted. */
#ifndef QUERN_OPS_H
#define QUERN_OPS_H

#include <quern/ops_matmul.h>
#include <quern/ops_norm.h>
#include <quern/ops_gdn.h>
#include <quern/ops_attention.h>
#include <quern/ops_moe.h>
#include <quern/ops_sampling.h>

#endif
