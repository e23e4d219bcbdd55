#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Cuts the small entries out of a file of reference ops for tests/ops.

    scripts/make_op_goldens.py ops.safetensors
        tests/data/op_goldens.safetensors: inputs and outputs from PyTorch in float32
"""
import json
import pathlib
import struct
import sys

PREFIXES = ("moe_route.", "rms_norm_gated.")
OUT = pathlib.Path(__file__).resolve().parent.parent / "tests/data/op_goldens.safetensors"


def main():
    data = pathlib.Path(sys.argv[1]).read_bytes()
    n = struct.unpack("<Q", data[:8])[0]
    header, body, cut = json.loads(data[8:8 + n]), b"", {}
    for name in sorted(k for k in header if k.startswith(PREFIXES)):
        begin, end = header[name]["data_offsets"]
        cut[name] = {**header[name], "data_offsets": [len(body), len(body) + end - begin]}
        body += data[8 + n + begin:8 + n + end]
    text = json.dumps(cut, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    OUT.write_bytes(struct.pack("<Q", len(text)) + text + body)


main()
