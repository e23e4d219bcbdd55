"""GGUF files of released models' exact shapes with random weights: for speed alone.

    python3 bench/random_model.py SHAPE TYPE OUT.gguf

SHAPE: 0.8B, 9B, 27B or 35B-A3B; 35B-A3B/4 has its first four layers only.  Every matrix has TYPE; norms,
gates and the convolution are F32, as in released files.  Quantised blocks are random bytes with scales that
make values of about unit gain.  The tokenizer is fairy's, padded with unused tokens to the released size.
Needs numpy; writes as fast as the disk takes it."""
import json
import os
import pathlib
import struct
import sys

import numpy as np

TOKENIZER = pathlib.Path(__file__).parent.parent / "models/fairy/tokenizer.json"
N_VOCAB, N_K_HEADS, HEAD, ROWS = 248320, 16, 128, 64
SHAPES = {
    "0.8B": dict(d_model=1024, n_layers=24, n_heads=8, n_kv=2, d_ff=3584, n_v_heads=16, tied=True),
    "9B": dict(d_model=4096, n_layers=32, n_heads=16, n_kv=4, d_ff=12288, n_v_heads=32),
    "27B": dict(d_model=5120, n_layers=64, n_heads=24, n_kv=4, d_ff=17408, n_v_heads=48),
    "35B-A3B": dict(d_model=2048, n_layers=40, n_heads=16, n_kv=2, n_v_heads=32,
                    n_experts=256, n_used=8, d_expert=512),
}
# Number in files; elements and bytes of a block; where its f16 scales are, and what they are multiples
# of, so that random bytes elsewhere have a mean of 0; the deviation of values with a scale of 1.
BLOCKS = {
    "Q4_0": (2, 32, 18, {0: 1}, 4.6), "Q4_1": (3, 32, 20, {0: 1, 2: -7.5}, 4.6),
    "Q5_0": (6, 32, 22, {0: 1}, 9.2), "Q5_1": (7, 32, 24, {0: 1, 2: -15.5}, 9.2),
    "Q8_0": (8, 32, 34, {0: 1}, 74), "Q2_K": (10, 256, 84, {80: 1, 82: 1.5}, 14),
    "Q3_K": (11, 256, 110, {108: 1}, 43), "Q4_K": (12, 256, 144, {0: 1, 2: 7.5}, 255),
    "Q5_K": (13, 256, 176, {0: 1, 2: 15.5}, 520), "Q6_K": (14, 256, 210, {208: 1}, 1370),
    "IQ4_NL": (20, 32, 18, {0: 1}, 70), "IQ4_XS": (23, 256, 136, {0: 1}, 1300),
}
FLOATS = {"F32": 0, "F16": 1, "BF16": 30}
U32, I32, F32, STRING, ARRAY = 4, 5, 6, 8, 9
ALIGNMENT = 32


def text(s):
    data = s.encode()
    return struct.pack("<Q", len(data)) + data


class File:
    """Keys and tensors are noted, then written; a tensor is a piece of data that is repeated."""

    def __init__(self, arch):
        self.arch, self.keys, self.tensors, self.at = arch, [], [], 0
        self.key("general.architecture", STRING, arch)

    def key(self, name, kind, value):
        code = {U32: "<I", I32: "<i", F32: "<f"}.get(kind)
        data = text(value) if kind == STRING else struct.pack(code, value)
        self.keys.append(text(name) + struct.pack("<I", kind) + data)

    def array(self, name, kind, values):
        data = (b"".join(map(text, values)) if kind == STRING
                else np.array(values, {U32: "<u4", I32: "<i4"}[kind]).tobytes())
        self.keys.append(text(name) + struct.pack("<IIQ", ARRAY, kind, len(values)) + data)

    def own(self, name, value, kind=U32):
        self.key(self.arch + "." + name, kind, value)

    def tensor(self, name, shape, kind, piece, n_bytes):
        info = text(name) + struct.pack("<I", len(shape)) + struct.pack(
            "<%dQ" % len(shape), *reversed(shape)) + struct.pack("<IQ", kind, self.at)
        self.tensors.append((name, info, piece, n_bytes))
        self.at += -(-n_bytes // ALIGNMENT) * ALIGNMENT

    def write(self, path):
        with open(path, "wb", buffering=0) as f:
            head = struct.pack("<4sIQQ", b"GGUF", 3, len(self.tensors), len(self.keys))
            head += b"".join(self.keys) + b"".join(info for _, info, _, _ in self.tensors)
            f.write(head + bytes(-len(head) % ALIGNMENT))
            for _, _, piece, n_bytes in self.tensors:
                whole, rest = divmod(n_bytes, len(piece))
                for _ in range(whole):
                    self.write_all(f, piece)
                self.write_all(f, piece[:rest] + bytes(-n_bytes % ALIGNMENT))

    @staticmethod
    def write_all(f, data):
        view = memoryview(data)
        while len(view):
            view = view[f.write(view):]


class Writer:
    """Tensors by name, of random values."""

    def __init__(self, arch, kind):
        self.file, self.kind = File(arch), kind
        self.number = FLOATS[kind] if kind in FLOATS else BLOCKS[kind][0]
        self.rng = np.random.default_rng(1)
        self.rows = {}

    def some_rows(self, n_in):
        """ROWS different rows of about unit gain."""
        if self.kind in FLOATS:
            x = (self.rng.standard_normal((ROWS, n_in)) / np.sqrt(n_in)).astype(np.float32)
            if self.kind == "BF16":
                return (x.view(np.uint32) >> 16).astype(np.uint16)
            return x.astype(np.float16) if self.kind == "F16" else x
        _, n, size, scales, deviation = BLOCKS[self.kind]
        if n_in % n:
            raise SystemExit("%s has blocks of %d, a row has %d" % (self.kind, n, n_in))
        blocks = self.rng.integers(0, 256, (ROWS, n_in // n, size), dtype=np.uint8)
        for at, multiple in scales.items():
            scale = np.float16(multiple / (deviation * np.sqrt(n_in)))
            blocks[..., at:at + 2] = np.frombuffer(scale.tobytes(), np.uint8)
        return blocks

    def piece(self, n_in):
        """Rows repeated to a few megabytes, so that few writes are needed; bytes of a row."""
        if n_in not in self.rows:
            data = self.some_rows(n_in).tobytes()
            self.rows[n_in] = data * max(1, (8 << 20) // len(data)), len(data) // ROWS
        return self.rows[n_in]

    def matrix(self, name, n_out, n_in, n_experts=None):
        piece, row = self.piece(n_in)
        shape = ([n_experts] if n_experts else []) + [n_out, n_in]
        self.file.tensor(name + ".weight", shape, self.number, piece,
                         n_out * (n_experts or 1) * row)

    def floats(self, name, values):
        data = np.ascontiguousarray(values, dtype="<f4")
        self.file.tensor(name, data.shape, 0, data.tobytes(), data.nbytes)

    def norm(self, name, n):
        self.floats(name + ".weight", 1 + 0.1 * self.rng.standard_normal(n))


def metadata(f, s):
    f.key("general.name", STRING, "random weights")
    f.own("block_count", s["n_layers"])
    f.own("context_length", 262144)
    f.own("embedding_length", s["d_model"])
    f.own("attention.head_count", s["n_heads"])
    f.own("attention.head_count_kv", s["n_kv"])
    f.own("attention.key_length", 256)
    f.own("attention.value_length", 256)
    f.own("attention.layer_norm_rms_epsilon", 1e-6, F32)
    f.own("rope.freq_base", 1e7, F32)
    f.own("rope.dimension_count", 64)
    f.array(f.arch + ".rope.dimension_sections", I32, [11, 11, 10, 0])
    f.own("ssm.conv_kernel", 4)
    f.own("ssm.state_size", HEAD)
    f.own("ssm.group_count", N_K_HEADS)
    f.own("ssm.time_step_rank", s["n_v_heads"])
    f.own("ssm.inner_size", s["n_v_heads"] * HEAD)
    f.own("full_attention_interval", 4)
    if "n_experts" in s:
        f.own("expert_count", s["n_experts"])
        f.own("expert_used_count", s["n_used"])
        f.own("expert_feed_forward_length", s["d_expert"])
        f.own("expert_shared_feed_forward_length", s["d_expert"])
    else:
        f.own("feed_forward_length", s["d_ff"])


def tokenizer(f):
    t = json.loads(TOKENIZER.read_text())
    normal, control, user, unused = 1, 3, 4, 5
    words = ["[PAD%d]" % i for i in range(N_VOCAB)]
    types = [unused] * N_VOCAB
    for word, i in t["model"]["vocab"].items():
        words[i], types[i] = word, normal
    for token in t["added_tokens"]:
        words[token["id"]] = token["content"]
        types[token["id"]] = control if token["special"] else user
    merges = t["model"]["merges"]
    f.key("tokenizer.ggml.model", STRING, "gpt2")
    f.key("tokenizer.ggml.pre", STRING, "qwen35")
    f.array("tokenizer.ggml.tokens", STRING, words)
    f.array("tokenizer.ggml.token_type", I32, types)
    f.array("tokenizer.ggml.merges", STRING,
            [m if isinstance(m, str) else " ".join(m) for m in merges])
    f.key("tokenizer.ggml.eos_token_id", U32, words.index("<|im_end|>"))


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


def shape_of(name):
    """None: there is no such shape."""
    base, _, layers = name.partition("/")
    if base not in SHAPES or not (layers == "" or layers.isdigit()):
        return None
    s = dict(SHAPES[base])
    s["n_layers"] = min(s["n_layers"], int(layers or s["n_layers"]))
    return s


def tensors(shape, kind):
    """All of the model, not yet written."""
    s = shape_of(shape)
    w = Writer("qwen35moe" if "n_experts" in s else "qwen35", kind)
    metadata(w.file, s)
    tokenizer(w.file)
    w.matrix("token_embd", N_VOCAB, s["d_model"])
    w.norm("output_norm", s["d_model"])
    if not s.get("tied"):
        w.matrix("output", N_VOCAB, s["d_model"])
    for i in range(s["n_layers"]):
        b = "blk.%d." % i
        w.norm(b + "attn_norm", s["d_model"])
        w.norm(b + "post_attention_norm", s["d_model"])
        (attention if i % 4 == 3 else delta_net)(w, b, s)
        feed_forward(w, b, s)
    return w.file


def write(shape, kind, path):
    part = str(path) + ".part"  # a file that is there is whole
    tensors(shape, kind).write(part)
    os.replace(part, path)


def bytes_of(shape, kind):
    """Bytes of each tensor by name."""
    return {name: n_bytes for name, _, _, n_bytes in tensors(shape, kind).tensors}


if __name__ == "__main__":
    if len(sys.argv) != 4 or not shape_of(sys.argv[1]) or sys.argv[2] not in {**BLOCKS, **FLOATS}:
        sys.exit(__doc__)
    write(*sys.argv[1:])
