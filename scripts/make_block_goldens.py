#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes what tests/formats compares blocks with.

    pip install numpy
    scripts/make_block_goldens.py decode ggml_blocks.safetensors
        tests/data/block_goldens.safetensors: one row of each type from a file of raw blocks, their
        values and, where there is one, the source that was quantised
    scripts/make_block_goldens.py encode PATH/TO/libggml-base.so
        tests/data/encode_sha256.json: SHA-256 of what ggml_quantize_chunk() makes of the inputs
        below, which tests/formats/test_encode.c makes in the same way
"""
import ctypes
import hashlib
import json
import pathlib
import struct
import sys

import numpy as np

DATA = pathlib.Path(__file__).resolve().parent.parent / "tests/data"

# name: GGUF id, elements and bytes of a block
TYPES = {"F16": (1, 1, 2), "BF16": (30, 1, 2), "Q4_0": (2, 32, 18), "Q4_1": (3, 32, 20),
         "Q5_0": (6, 32, 22), "Q5_1": (7, 32, 24), "Q8_0": (8, 32, 34), "Q2_K": (10, 256, 84),
         "Q3_K": (11, 256, 110), "Q4_K": (12, 256, 144), "Q5_K": (13, 256, 176),
         "Q6_K": (14, 256, 210), "IQ4_NL": (20, 32, 18), "IQ4_XS": (23, 256, 136),
         "TQ1_0": (34, 256, 54), "TQ2_0": (35, 256, 66), "MXFP4": (39, 32, 17),
         "NVFP4": (40, 64, 36), "Q1_0": (41, 128, 18), "Q2_0": (42, 64, 18)}
KINDS = ("uniform bell shifted negative sparse steps heavy runs constant zero tiny huge "
         "bfloat").split()
N_VALUES = 16 * 256


def read_safetensors(path):
    data = pathlib.Path(path).read_bytes()
    n = struct.unpack("<Q", data[:8])[0]
    for name, info in sorted(json.loads(data[8:8 + n]).items()):
        if name != "__metadata__":
            begin, end = info["data_offsets"]
            yield name, info, data[8 + n + begin:8 + n + end]


def decode(path):
    header, parts, at = {}, [], 0
    for name, info, data in read_safetensors(path):
        row = data[:len(data) // info["shape"][0]]
        header[name] = {"dtype": info["dtype"], "shape": info["shape"][1:],
                        "data_offsets": [at, at + len(row)]}
        at += len(row)
        parts.append(row)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (DATA / "block_goldens.safetensors").write_bytes(
        struct.pack("<Q", len(text)) + text + b"".join(parts))


class Draw:
    """Numbers that every language makes alike: a linear congruence, its upper 24 bits."""

    def __init__(self, seed):
        self.state = seed

    def bits(self):
        self.state = (self.state * 1664525 + 1013904223) & 0xffffffff
        return self.state >> 8

    def uniform(self):
        return np.float32(self.bits() - (1 << 23)) * np.float32(2.0 ** -23)

    def bell(self):
        return np.float32(sum(self.bits() for _ in range(4)) - (1 << 25)) * np.float32(2.0 ** -25)


def values(kind):
    draw = Draw(KINDS.index(kind) + 1)
    x = np.zeros(N_VALUES, np.float32)
    scale = np.float32(0)
    for i in range(N_VALUES):
        if kind == "uniform":
            x[i] = draw.uniform()
        elif kind == "bell":
            x[i] = draw.bell()
        elif kind == "shifted":
            x[i] = draw.bell() + np.float32(3)
        elif kind == "negative":
            x[i] = -abs(draw.bell())
        elif kind == "sparse":
            x[i] = draw.bell() if draw.bits() % 8 == 0 else 0
        elif kind == "steps":
            x[i] = draw.bits() % 9 - 4.0
        elif kind == "heavy":
            x[i] = draw.bell() * np.float32(2.0 ** (draw.bits() % 24 - 12))
        elif kind == "runs":  # runs of 16 on scales of their own, some of them zero
            if i % 16 == 0:
                scale = np.float32(2.0 ** -(draw.bits() % 12) if draw.bits() % 4 else 0)
            x[i] = draw.bell() * scale
        elif kind == "constant":
            if i % 256 == 0:
                scale = draw.bell()
            x[i] = scale
        elif kind == "tiny":
            x[i] = draw.bell() * np.float32(2.0 ** -60)
        elif kind == "huge":
            x[i] = draw.bell() * np.float32(2.0 ** 100)
        elif kind == "bfloat":
            x[i] = (draw.bell().view(np.uint32) & np.uint32(0xffff0000)).view(np.float32)
    return x


def encode(path):
    lib = ctypes.CDLL(path)
    lib.ggml_quantize_chunk.restype = ctypes.c_size_t
    lib.ggml_quantize_chunk.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p] + \
        [ctypes.c_int64] * 3 + [ctypes.c_void_p]
    hashes = {}
    for kind in KINDS:
        x = values(kind)
        for name, (number, elements, n_bytes) in TYPES.items():
            out = np.zeros(N_VALUES // elements * n_bytes, np.uint8)
            n = lib.ggml_quantize_chunk(number, x.ctypes.data, out.ctypes.data, 0,
                                        N_VALUES // 256, 256, None)
            assert n == out.size
            digest = hashlib.sha256(out.tobytes()).hexdigest()[:32]
            hashes.setdefault(name, {})[kind] = digest
    text = ",\n".join(f" {json.dumps(k)}: " + json.dumps(v, indent=2).replace("\n}", "}")
                      for k, v in hashes.items())
    (DATA / "encode_sha256.json").write_text("{\n" + text + "\n}\n")


def main():
    if len(sys.argv) != 3 or sys.argv[1] not in ("decode", "encode"):
        sys.exit(__doc__)
    globals()[sys.argv[1]](sys.argv[2])


main()
