#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes tests/data/recipe_types.json: which types llama-quantize plans for small made-up models.

    pip install gguf numpy
    scripts/make_recipe_goldens.py PATH/TO/llama-quantize

Only names and shapes matter (--dry-run), so the models are a few zeros with odd dimensions.  In the
file a plan is a string of one letter for each tensor; "letters" says which types they are.
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile

import gguf
import numpy as np

OUT = pathlib.Path(__file__).resolve().parent.parent / "tests/data/recipe_types.json"
LETTERS = dict(zip("f32 bf16 f16 q8_0 q6_k q5_k q5_1 q5_0 q4_k q4_1 q4_0 iq4_nl iq4_xs mxfp4 q3_k "
                   "q2_k q2_0 tq2_0 tq1_0".split(), ".ABCDEFGHIJKLMNOPQR"))
TARGETS = ("F32 BF16 F16 Q8_0 Q6_K Q5_K_M Q5_K_S Q5_1 Q5_0 Q4_K_M Q4_K_S IQ4_NL IQ4_XS Q4_1 Q4_0 "
           "MXFP4_MOE Q3_K_L Q3_K_M Q3_K_S Q2_K Q2_0 TQ2_0 TQ1_0").split()

#          architecture layers mtp experts heads kv hidden ffn tied   why
MODELS = [("qwen35",    17, 0, 0, 8, 2, 256, 768, False),  # groups of 4, enough layers for eighths
          ("qwen35",    10, 1, 0, 4, 2, 256, 288, True),   # a prediction layer; rows of 288
          ("qwen35",     4, 0, 0, 4, 4, 272, 512, True),   # rows of 272 = 17 * 16
          ("qwen35moe", 16, 0, 4, 8, 1, 256, 256, False),
          ("qwen35moe",  9, 1, 8, 4, 2, 256, 288, False),  # eight experts have rules of their own
          ("qwen3next", 12, 0, 16, 4, 2, 256, 256, True)]


def tensors(arch, n_layers, n_mtp, n_experts, heads, kv, hidden, ffn, tied):
    """Name and shape, outermost first."""
    value = 512
    yield "token_embd.weight", [64, hidden]
    yield "output_norm.weight", [hidden]
    if not tied:
        yield "output.weight", [64, hidden]
    for i in range(n_layers):
        p = f"blk.{i}."
        mtp = i >= n_layers - n_mtp
        yield p + "attn_norm.weight", [hidden]
        yield p + "post_attention_norm.weight", [hidden]
        if (i + 1) % 4 == 0 or mtp:
            yield p + "attn_q.weight", [heads * 512, hidden]
            yield p + "attn_k.weight", [kv * 256, hidden]
            yield p + "attn_v.weight", [kv * 256, hidden]
            yield p + "attn_output.weight", [hidden, heads * 256]
            yield p + "attn_q_norm.weight", [256]
            yield p + "attn_k_norm.weight", [256]
        else:
            yield p + "attn_qkv.weight", [512 + value, hidden]
            yield p + "attn_gate.weight", [value, hidden]
            if arch == "qwen3next":
                yield p + "ssm_ba.weight", [8, hidden]
            else:
                yield p + "ssm_alpha.weight", [4, hidden]
                yield p + "ssm_beta.weight", [4, hidden]
            yield p + "ssm_conv1d.weight", [512 + value, 4]
            yield p + "ssm_dt.bias", [4]
            yield p + "ssm_a", [4]
            yield p + "ssm_norm.weight", [128]
            yield p + "ssm_out.weight", [hidden, value]
        if n_experts:
            yield p + "ffn_gate_inp.weight", [n_experts, hidden]
            yield p + "ffn_gate_inp_shexp.weight", [hidden]
            yield p + "ffn_gate_exps.weight", [n_experts, ffn, hidden]
            yield p + "ffn_up_exps.weight", [n_experts, ffn, hidden]
            yield p + "ffn_down_exps.weight", [n_experts, hidden, ffn]
            yield p + "ffn_gate_shexp.weight", [ffn, hidden]
            yield p + "ffn_up_shexp.weight", [ffn, hidden]
            yield p + "ffn_down_shexp.weight", [hidden, ffn]
        else:
            yield p + "ffn_gate.weight", [ffn, hidden]
            yield p + "ffn_up.weight", [ffn, hidden]
            yield p + "ffn_down.weight", [hidden, ffn]
        if mtp:
            yield p + "nextn.eh_proj.weight", [hidden, 2 * hidden]
            yield p + "nextn.enorm.weight", [hidden]
            yield p + "nextn.hnorm.weight", [hidden]
            yield p + "nextn.shared_head_norm.weight", [hidden]


def write_gguf(path, model, names):
    arch, n_layers, n_mtp, n_experts, heads, kv, hidden, ffn, _ = model
    w = gguf.GGUFWriter(path, arch)
    w.add_block_count(n_layers)
    w.add_context_length(256)
    w.add_embedding_length(hidden)
    w.add_feed_forward_length(ffn)
    w.add_head_count(heads)
    w.add_head_count_kv(kv)
    w.add_key_length(256)
    w.add_value_length(256)
    w.add_layer_norm_rms_eps(1e-6)
    w.add_rope_dimension_count(64)
    w.add_rope_dimension_sections([11, 11, 10, 0])
    w.add_ssm_conv_kernel(4)
    w.add_ssm_state_size(128)
    w.add_ssm_group_count(2)
    w.add_ssm_time_step_rank(4)
    w.add_ssm_inner_size(512)
    if n_mtp:
        w.add_uint32(f"{arch}.nextn_predict_layers", n_mtp)
    if n_experts:
        w.add_expert_count(n_experts)
        w.add_expert_used_count(2)
        w.add_expert_feed_forward_length(ffn)
        w.add_expert_shared_feed_forward_length(ffn)
    for name, shape in names:
        w.add_tensor(name, np.zeros(shape, dtype=np.float32))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def plan(program, path, target, pure):
    args = [program, "--dry-run"] + (["--pure"] if pure else []) + [path, target]
    run = subprocess.run(args, capture_output=True, text=True)
    text = run.stdout + run.stderr
    if run.returncode != 0:
        return None
    types = {}
    for m in re.finditer(r"^\[ *\d+/ *\d+\] +(\S+) +- \[.*?type = +\w+, .*?size = .*?MiB(?: -> "
                         r".*?\((\w+)\))?$", text, re.M):
        types[m[1]] = (m[2] or "f32").lower()
    return types


def main():
    program, models = sys.argv[1], []
    for model in MODELS:
        arch, n_layers, _, n_experts, heads, kv, *_ = model
        names = list(tensors(*model))
        entry = {"n_layers": n_layers, "n_experts": n_experts, "n_heads": heads, "n_kv_heads": kv,
                 "tensors": [[name] + shape for name, shape in names], "mixtures": {}, "pure": {}}
        with tempfile.TemporaryDirectory() as directory:
            path = directory + "/model.gguf"
            write_gguf(path, model, names)
            for target in TARGETS:
                for key in ("mixtures", "pure"):
                    types = plan(program, path, target, key == "pure")
                    if types is not None:
                        entry[key][target] = "".join(LETTERS[types[name]] for name, _ in names)
        models.append(entry)
    rows = []
    for entry in models:
        head = {k: v for k, v in entry.items() if k not in ("tensors", "mixtures", "pure")}
        parts = [json.dumps(head)[1:-1],
                 '"tensors": [\n' + ",\n".join(map(json.dumps, entry["tensors"])) + "]"]
        for key in ("mixtures", "pure"):
            parts.append(f'"{key}": {{\n' + ",\n".join(
                f"{json.dumps(k)}: {json.dumps(v)}" for k, v in entry[key].items()) + "}")
        rows.append("{" + ",\n".join(parts) + "}")
    letters = json.dumps({letter: name for name, letter in LETTERS.items()})
    OUT.write_text('{"letters": ' + letters + ',\n"models": [\n' + ",\n".join(rows) + "]}\n")


main()
