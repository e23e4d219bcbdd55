"""The table of bench/gpu.py: what is measured, the limits, the targets, peers' published figures.

A row of an op names cases of quern bench --op: (op, --case, --sizes, the name that comes out); of several
the fastest counts.  Published figures of peers are of one H200; those of gpu_peers.py are of the same run."""
import functools

import random_model

TYPES = ["Q4_0", "Q4_K", "Q6_K", "Q8_0", "BF16"]
MATRICES = [(17408, 5120), (152064, 4096)]
# sequences, length, key and value heads: milliseconds of FlashQLA, FlashInfer, FLA
GDN_PREFILL = [((1, 32768, 16, 64), (1.521, 1.552, 3.331)), ((1, 8192, 16, 64), (.397, .392, .814)),
               ((1, 2048, 16, 64), (.113, .105, .220)), ((8, 4096, 16, 64), (1.217, .841, 3.390)),
               ((1, 32768, 8, 32), (.885, 1.555, 1.885)), ((1, 8192, 8, 32), (.280, .394, .466)),
               ((8, 4096, 8, 32), (.612, .424, 1.902)), ((1, 32768, 4, 16), (.496, 1.657, 1.241)),
               ((1, 32768, 2, 8), (.320, 1.655, .902)), ((1, 8192, 2, 8), (.119, .417, .234))]
GDN_DECODE = {1: 8.0, 8: 18.1, 64: 97.5, 256: 367.6}  # sequences: FLA's microseconds
CONV = {8192: 340, 32768: 445}
# tokens, heads, key-value heads: microseconds of cuDNN with bf16, with f16 (which pages have), of FlexAttention
# with a window of 1024
ATTENTION = [((8192, 16, 2), 940, 987, 525), ((32768, 16, 2), 13690, 14450, None),
             ((8192, 24, 4), 1377, 1435, None)]
WINDOW = 1024


def row(name, **more):
    """must_ and goal_: share (of the limit), us, ratio (of the first peer's rate), peer (its name and a
    part of its time), of (another row and a part of its time, or a multiple of its rate)."""
    return dict(dict(name=name, published={}, limit=""), **more)


def gdn_flops(tokens, n_v_heads):
    """Matrix work of chunks of 64 with d 128."""
    return 179.8e3 * tokens * n_v_heads


def gdn_rows():
    rows = []
    for (n, t, hk, hv), (qla, infer, fla) in GDN_PREFILL:
        shape = "%dx%d Hk %d Hv %d d 128" % (n, t, hk, hv)
        sizes = [n, t, hk, hv, 128]
        rows.append(row(
            "GDN prefill %dx%d %d/%d" % (n, t, hk, hv),
            cases=[("gdn_open_chunk", "bf16 2x512 at 0 Hk 16 Hv 32 d 128 rounded$", sizes,
                    "bf16 %dx%d at 0%s rounded" % (n, t, shape[shape.index(" "):]))],
            flops=gdn_flops(n * t, hv), bytes=2 * 128 * n * t * (2 * hk + 2 * hv), limit="time",
            published={"FlashQLA": qla * 1e3, "FlashInfer": infer * 1e3, "FLA": fla * 1e3},
            must_peer=("FLA", 0.6), goal_us=min(qla, infer) * 1e3))
    for n, fla in GDN_DECODE.items():
        rows.append(row("GDN decode B%d" % n, limit="copy", published={"FLA": fla},
                        cases=[("gdn_open_chunk", "8 seqs, each place Hk", [n, 16, 32, 128],
                                "%d seqs, each place Hk 16 Hv 32 d 128" % n)],
                        **(dict(must_us=4, goal_us=2.5) if n == 1
                           else dict(must_share=.85, goal_share=.92))))
    rows.append(row("GDN decode B1, layers of 27B", limit="copy", must_us=4, goal_us=2.5,
                    cases=[("gdn_open_chunk", "8 seqs, each place Hk", [1, 16, 48, 128],
                            "1 seqs, each place Hk 16 Hv 48 d 128")]))
    for t, fla in CONV.items():
        rows.append(row("ssm_conv T %d" % t, limit="copy", must_share=.85, goal_share=.92,
                        published={"FLA": fla},
                        cases=[("ssm_conv", "bf16 T 934", [t, 8192, 4],
                                "bf16 T %d C 8192 K 4" % t)]))
    return rows


def product(kind, n, k, m, form, rounded=False):
    """A case of matmul; those of any type are in the table with m 1 or 512 and other sizes."""
    low = kind.lower()
    old = 512 if rounded or (form == "bf16 packed" and kind != "BF16") else 1
    more = form + (", x rounded" if rounded else "")
    return ("matmul", "%s 4096x14336 M %d %s$" % (low, old, more), [n, k, m],
            "%s %dx%d M %d %s" % (low, n, k, m, more))


def products(kind, n, k, m):
    """As models have them: few rows of x rounded to 8 bits before, many rounded to bf16 in the product;
    to bf16 with bf16 weights."""
    if kind == "BF16":
        return [product(kind, n, k, m, "bf16")]
    if m > 8:
        return [product(kind, n, k, m, "bf16 packed")]
    return [product(kind, n, k, m, "q8 packed", True)]


def product_rows():
    rows = []
    for m in (1, 4, 512, 4096):
        for kind in TYPES:
            for n, k in MATRICES:
                peers = {(17408, 1): {"cuBLAS": 57.6}, (152064, 1): {"cuBLAS": 307.6}}
                many = m > 4
                rows.append(row(
                    "%s %s %dx%d n %d" % ("mat-mat" if many else "mat-vec", kind, n, k, m),
                    cases=products(kind, n, k, m), limit="matrix" if many else "copy",
                    published=peers.get((n, m), {}) if kind == "BF16" else {},
                    must_share=.6 if many else .85, goal_share=.75 if many else .92))
    return rows


def window_share(t, tile=64):
    """Tiles that a window attends to, of those that all causal rows do."""
    most = WINDOW // tile + 1
    n = t // tile
    return sum(min(i + 1, most) for i in range(n)) / (n * (n + 1) / 2)


def attention_rows():
    rows = []
    for (t, h, hkv), cudnn, cudnn_f16, flex in ATTENTION:
        shape, n = "H %d/%d d 256" % (h, hkv), [t, t, h, hkv, 256]
        causal = "attention T %d H%d/%d" % (t, h, hkv)
        flops = 4 * h * 256 * t * (t + 1) / 2
        cases, windows = [], []
        for kv in ("bf16", "f16"):
            find = "%s T 8192 of 8192 H 16/2 d 256" % kv
            name = "%s T %d of %d %s" % (kv, t, t, shape)
            cases.append(("attention", find + " rounded$", n, name + " rounded"))
            if kv == "bf16":
                windows.append(("attention", find + " window 1024 rounded$", n,
                                name + " window 1024 rounded"))
        paged = ("attention_paged", "f16 T 8192 at 0 H 16/2 d 256 rounded$", [t, 0, h, hkv, 256],
                 "f16 T %d at 0 %s rounded" % (t, shape))
        more = dict(limit="matrix", flops=flops, must_us=flops / 450e6, goal_peer=("cuDNN", 1))
        peer = {"cuDNN": cudnn}
        rows.append(row(causal, cases=cases, published=peer, **more))
        rows.append(row(causal + ", pages", cases=[paged], published={"cuDNN": cudnn_f16}, **more))
        attended = sum(min(i + 1, WINDOW) for i in range(t)) * 4 * h * 256
        rows.append(row(causal + ", window 1024", cases=windows, limit="matrix", flops=attended,
                        published={"FlexAttention": flex} if flex else {},
                        must_peer=("FlexAttention", 1 / 1.5),
                        goal_of=(causal, 1.15 * window_share(t))))
    return rows


def part_rows():
    """Not among the targets: what else a step of the 9B and 35B-A3B shapes is made of."""
    def part(name, op, find, sizes, case, limit="copy"):
        return row("part: " + name, cases=[(op, find, sizes, case)], limit=limit)
    rows = [
        part("attention of a token at 32767", "attention_paged", "f16 T 1 at 4095 H 16/2 d 256$",
             [1, 32767, 16, 4, 256], "f16 T 1 at 32767 H 16/4 d 256"),
        part("norm of a token", "rms_norm", "1x4096", [1, 4096], "1x4096 fused residual"),
        part("norm of 4096", "rms_norm", "512x4096", [4096, 4096], "4096x4096 fused residual"),
        part("silu_mul of 4096", "silu_mul", "512x4096", [4096, 12288], "4096x12288"),
        part("conv of a token", "ssm_conv_history", "T 1 C 8192", [1, 8192, 4], "T 1 C 8192 K 4"),
        part("gates of a token", "gdn_gates", "T 1 ", [1, 32], "T 1 H 32"),
        part("sampling", "sample", "top_k 40", [248320, 40], "248320 top_k 40 top_p 0.95"),
        part("argmax", "argmax", "1x", [1, 248320], "1x248320"),
        part("routes of 4096", "moe_route", "T 512", [4096, 8, 256], "T 4096, 8 of 256"),
    ]
    for kind in ("BF16", "Q4_K"):
        for n, k in ((12288, 4096), (4096, 12288), (248320, 4096)):
            rows.append(row("part: %s %dx%d n 1" % (kind, n, k), cases=products(kind, n, k, 1),
                            limit="copy"))
    for t in (1, 4096):
        rows.append(part("experts of %d" % t, "matmul_id",
                         "q4_k 8/32 512x2048 T %d q8 packed$" % (1 if t == 1 else 64),
                         [8, 256, 512, 2048, t], "q4_k 8/256 512x2048 T %d q8 packed" % t,
                         "copy" if t == 1 else "matrix"))
    return rows


# --- whole models ---

def model(name, shape, kind, test, peer, **more):
    """test: tokens of the prompt, tokens to generate, depth, sequences; peer: llama.cpp's tokens a
    second, or None."""
    published = {"llama.cpp": peer} if peer else {}
    return row(name, model=(shape, kind), test=test, published=published, **more)


def decode(shape, kind, peer, must, goal, depth=0, of="share"):
    name = "%s %s decode%s" % (shape, kind, " at depth %d" % depth if depth else "")
    keys = ("must_share", "goal_share") if of == "share" else ("must_ratio", "goal_ratio")
    return model(name, shape, kind, (0, 128, depth, 1), peer, limit="read",
                 depth=depth, **dict(zip(keys, (must, goal))))


def prefill(shape, kind, t, peer, must, goal):
    goals = dict(goal_share=goal) if goal < 1 else dict(goal_ratio=goal)
    return model("%s %s prefill %d" % (shape, kind, t), shape, kind, (t, 0, 0, 1), peer,
                 limit="matrix", must_ratio=must, **goals)


def model_rows():
    many = model("9B BF16 decode of 64", "9B", "BF16", (0, 64, 0, 64), None,
                 must_of=("9B BF16 decode", 38), goal_of=("9B BF16 decode", 46))
    return [
        decode("0.8B", "BF16", 521, 2.5, 3.5, of="ratio"),
        decode("9B", "BF16", 181, .85, .92), decode("9B", "BF16", 166, .8, .9, 32768),
        prefill("9B", "BF16", 4096, 19600, 1.5, .6), prefill("9B", "BF16", 32768, 17800, 1.5, .6),
        many,
        decode("9B", "Q4_K", 253, .75, .88), decode("9B", "Q4_K", 226, .7, .85, 32768),
        prefill("9B", "Q4_K", 4096, 9100, 2.5, 3.3), prefill("9B", "Q4_K", 32768, 8840, 2.5, 3.3),
        decode("9B", "Q8_0", 220, .8, .9),
        prefill("9B", "Q8_0", 4096, 8800, 2.5, 3.3), prefill("9B", "Q8_0", 32768, 8990, 2.5, 3.3),
        decode("9B", "Q4_0", 288, .75, .88),
        decode("35B-A3B", "Q4_K", 250, 2.5, 4, of="ratio"),
        prefill("35B-A3B", "Q4_K", 4096, 11500, 2, 4),
    ]


@functools.lru_cache
def bytes_of(shape, kind):
    return random_model.bytes_of(shape, kind)


def read_bytes(shape, kind, depth):
    """What a token of decode must read: weights that it uses, states, open rows, keys and values."""
    s = random_model.shape_of(shape)
    n = 0
    for name, n_bytes in bytes_of(shape, kind).items():
        if name == "token_embd.weight" and not s.get("tied"):
            continue
        n += n_bytes * (s["n_used"] / s["n_experts"] if "_exps" in name else 1)
    n_attention = s["n_layers"] // 4
    state = 4 * 128 * (128 * s["n_v_heads"] + 32 * (16 + s["n_v_heads"]))
    kv = 2 * 2 * 256 * s["n_kv"] * (depth + 64)
    return n + (s["n_layers"] - n_attention) * state + n_attention * kv


def token_flops(shape):
    """Products of a token in a prompt: all layers, without the head."""
    s = random_model.shape_of(shape)
    n = 0
    for name, n_bytes in bytes_of(shape, "BF16").items():
        if name.startswith("blk.") and name.endswith(".weight") and "norm" not in name:
            n += n_bytes * (s["n_used"] / s["n_experts"] if "_exps" in name else 1)
    return n  # two bytes a weight, two operations


def all_rows():
    return gdn_rows() + product_rows() + attention_rows() + part_rows() + model_rows()
