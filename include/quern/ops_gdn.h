/* SPDX-License-Identifier: MIT
 * Ops: the gated delta net: convolution, gates, recurrence, chunks.
 * Included by ops.h, which says what holds for all ops. */
#ifndef QUERN_OPS_GDN_H
#define QUERN_OPS_GDN_H

#include <quern/device.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Which key head value head h reads; n_v_heads is a multiple of n_k_heads. */
enum qrn_head_map {
    QRN_HEADS_BLOCK = 1, /* h / (n_v_heads / n_k_heads): Hugging Face, MLX, GGUF qwen3next */
    QRN_HEADS_TILED      /* h % n_k_heads: GGUF qwen35 and qwen35moe */
};

#ifdef __cplusplus
}
#endif
#endif
