/* SPDX-License-Identifier: MIT
 * Models of a few thousand parameters with random weights, in directories as Hugging Face lays them
 * out: small enough to fail every allocation in turn. */
#ifndef TESTS_SUPPORT_TOY_MODEL_H
#define TESTS_SUPPORT_TOY_MODEL_H

enum toy_kind {
    TOY_DENSE, /* qwen3_5: flat config, tied embeddings, separate projections */
    TOY_MOE,   /* qwen3_5_moe: nested config, fused experts */
    TOY_NEXT,  /* qwen3_next: qkvz and ba fused, separate experts */
    TOY_KINDS,
    /* As TOY_DENSE and TOY_MOE with rows of 640, heads of 128 and experts of 512; not among the small ones. */
    TOY_WIDE = TOY_KINDS,
    TOY_WIDE_MOE
};

/* Writes config.json and model.safetensors into dir, which exists: 3 layers, linear, attention, linear;
 * vocabulary of 96, no tokenizer.  The same bytes each time.  Ends the test on failure. */
void toy_model_write(const char *dir, enum toy_kind kind);
/* The same, into a directory of the test's own; its path, until the next call. */
const char *toy_model_make(enum toy_kind kind);

#endif
