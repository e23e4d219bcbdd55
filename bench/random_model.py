"""GGUF files of released models' exact shapes with random weights: for speed alone.

    python3 bench/random_model.py SHAPE TYPE OUT.gguf      SHAPE: 0.8B or 35B-A3B/4 (four layers)

Every matrix has TYPE; norms, gates and the convolution are F32, as in released files.  The tokenizer is
fairy's, padded with unused tokens to the released size.  Needs numpy and gguf."""
import json
import pathlib
import sys

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type

TOKENIZER = pathlib.Path(__file__).parent.parent / "models/fairy/tokenizer.json"
N_VOCAB, N_K_HEADS, HEAD, ROWS = 248320, 16, 128, 64
SHAPES = {
    "0.8B": dict(d_model=1024, n_layers=24, n_heads=8, n_kv=2, d_ff=3584, n_v_heads=16),
    "35B-A3B/4": dict(d_model=2048, n_layers=4, n_heads=16, n_kv=2, n_v_heads=32,
                      n_experts=256, n_used=8, d_expert=512),
}
# Where a K block keeps its f16 scales: random bytes there would be infinite.
SCALES_AT = {"Q2_K": (80, 82), "Q3_K": (108,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,)}


class Writer:
    def __init__(self, path, arch, kind):
        self.file = gguf.GGUFWriter(path, arch)
        self.arch, self.kind = arch, kind
        self.rng = np.random.default_rng(1)
        self.rows = {}

    def some_rows(self, n_in):
        """ROWS different rows of about unit gain."""
        x = (self.rng.standard_normal((ROWS, n_in)) / np.sqrt(n_in)).astype(np.float32)
        if self.kind == Type.BF16:
            return (x.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
        if self.kind.name not in SCALES_AT:
            return gguf.quantize(x, self.kind)
        n, size = gguf.GGML_QUANT_SIZES[self.kind]
        blocks = self.rng.integers(0, 256, (ROWS, n_in // n, size), dtype=np.uint8)
        scale = np.frombuffer(np.float16(2e-4 / np.sqrt(n_in)).tobytes(), np.uint8)
        for at in SCALES_AT[self.kind.name]:
            blocks[..., at:at + 2] = scale
        return blocks.reshape(ROWS, -1)

    def matrix(self, name, n_out, n_in, n_experts=None):
        if n_in not in self.rows:
            self.rows[n_in] = self.some_rows(n_in)
        n = n_out * (n_experts or 1)
        data = np.tile(self.rows[n_in], (-(-n // ROWS), 1))[:n]
        if n_experts:
            data = data.reshape(n_experts, n_out, -1)
        self.file.add_tensor(name + ".weight", data, raw_dtype=self.kind)

    def floats(self, name, values):
        self.file.add_tensor(name, np.ascontiguousarray(values, dtype=np.float32))

    def norm(self, name, n):
        self.floats(name + ".weight", 1 + 0.1 * self.rng.standard_normal(n))


def metadata(w, s):
    f, a = w.file, w.arch
    f.add_name("random weights")
    f.add_block_count(s["n_layers"])
    f.add_context_length(262144)
    f.add_embedding_length(s["d_model"])
    f.add_head_count(s["n_heads"])
    f.add_head_count_kv(s["n_kv"])
    f.add_key_length(256)
    f.add_value_length(256)
    f.add_layer_norm_rms_eps(1e-6)
    f.add_rope_freq_base(1e7)
    f.add_rope_dimension_count(64)
    f.add_rope_dimension_sections([11, 11, 10, 0])
    f.add_ssm_conv_kernel(4)
    f.add_ssm_state_size(HEAD)
    f.add_ssm_group_count(N_K_HEADS)
    f.add_ssm_time_step_rank(s["n_v_heads"])
    f.add_ssm_inner_size(s["n_v_heads"] * HEAD)
    f.add_uint32(a + ".full_attention_interval", 4)
    if "n_experts" in s:
        f.add_expert_count(s["n_experts"])
        f.add_expert_used_count(s["n_used"])
        f.add_expert_feed_forward_length(s["d_expert"])
        f.add_expert_shared_feed_forward_length(s["d_expert"])
    else:
        f.add_feed_forward_length(s["d_ff"])


def tokenizer(w):
    t = json.loads(TOKENIZER.read_text())
    words = ["[PAD%d]" % i for i in range(N_VOCAB)]
    types = [gguf.TokenType.UNUSED] * N_VOCAB
    for word, i in t["model"]["vocab"].items():
        words[i], types[i] = word, gguf.TokenType.NORMAL
    for token in t["added_tokens"]:
        kind = gguf.TokenType.CONTROL if token["special"] else gguf.TokenType.USER_DEFINED
        words[token["id"]], types[token["id"]] = token["content"], kind
    w.file.add_tokenizer_model("gpt2")
    w.file.add_tokenizer_pre("qwen35")
    w.file.add_token_list(words)
    w.file.add_token_types(types)
    merges = t["model"]["merges"]
    w.file.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in merges])
    w.file.add_eos_token_id(words.index("<|im_end|>"))


def attention(w, b, s):
    d = s["d_model"]
    w.matrix(b + "attn_q", s["n_heads"] * 512, d)
    w.matrix(b + "attn_k", s["n_kv"] * 256, d)
    w.matrix(b + "attn_v", s["n_kv"] * 256, d)
    w.matrix(b + "attn_output", d, s["n_heads"] * 256)
    w.norm(b + "attn_q_norm", 256)
    w.norm(b + "attn_k_norm", 256)


def delta_net(w, b, s):
    d, n_v = s["d_model"], s["n_v_heads"]
    channels = (2 * N_K_HEADS + n_v) * HEAD
    w.matrix(b + "attn_qkv", channels, d)
    w.matrix(b + "attn_gate", n_v * HEAD, d)
    w.matrix(b + "ssm_alpha", n_v, d)
    w.matrix(b + "ssm_beta", n_v, d)
    w.floats(b + "ssm_conv1d.weight", 0.5 * w.rng.standard_normal((channels, 4)))
    w.floats(b + "ssm_dt.bias", w.rng.standard_normal(n_v))
    w.floats(b + "ssm_a", -np.exp(3 * w.rng.random(n_v) - 1))
    w.norm(b + "ssm_norm", HEAD)
    w.matrix(b + "ssm_out", d, n_v * HEAD)


def feed_forward(w, b, s):
    d = s["d_model"]
    if "n_experts" not in s:
        w.matrix(b + "ffn_gate", s["d_ff"], d)
        w.matrix(b + "ffn_up", s["d_ff"], d)
        w.matrix(b + "ffn_down", d, s["d_ff"])
        return
    n, ff = s["n_experts"], s["d_expert"]
    w.floats(b + "ffn_gate_inp.weight", w.rng.standard_normal((n, d)) / np.sqrt(d))
    w.floats(b + "ffn_gate_inp_shexp.weight", w.rng.standard_normal(d) / np.sqrt(d))
    for part, experts in (("exps", n), ("shexp", None)):
        w.matrix(b + "ffn_gate_" + part, ff, d, experts)
        w.matrix(b + "ffn_up_" + part, ff, d, experts)
        w.matrix(b + "ffn_down_" + part, d, ff, experts)


def write(shape, kind, path):
    s = SHAPES[shape]
    moe = "n_experts" in s
    w = Writer(path, "qwen35moe" if moe else "qwen35", Type[kind])
    metadata(w, s)
    tokenizer(w)
    w.matrix("token_embd", N_VOCAB, s["d_model"])
    w.norm("output_norm", s["d_model"])
    if moe:
        w.matrix("output", N_VOCAB, s["d_model"])
    for i in range(s["n_layers"]):
        b = "blk.%d." % i
        w.norm(b + "attn_norm", s["d_model"])
        w.norm(b + "post_attention_norm", s["d_model"])
        (attention if i % 4 == 3 else delta_net)(w, b, s)
        feed_forward(w, b, s)
    w.file.write_header_to_file()
    w.file.write_kv_data_to_file()
    w.file.write_tensors_to_file()
    w.file.close()


if __name__ == "__main__":
    if len(sys.argv) != 4 or sys.argv[1] not in SHAPES:
        sys.exit(__doc__)
    write(*sys.argv[1:])
