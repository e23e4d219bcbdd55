#!/usr/bin/env python3
"""The small entries of the gated delta net in ops.safetensors (written with PyTorch and Hugging
Face transformers in float32), as the file that tests carry.
usage: make_gdn_goldens.py OPS.safetensors OUT.safetensors"""
import json
import struct
import sys

KEEP = ("ssm_conv.", "gdn_gates.", "gated_delta_net.6.")


def main(source, out):
    with open(source, "rb") as f:
        size = struct.unpack("<Q", f.read(8))[0]
        header = json.loads(f.read(size))
        data = f.read()
    kept, blob = {}, b""
    for name in sorted(n for n in header if n.startswith(KEEP)):
        begin, end = header[name]["data_offsets"]
        kept[name] = dict(header[name], data_offsets=[len(blob), len(blob) + end - begin])
        blob += data[begin:end]
    text = json.dumps(kept, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(out, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + blob)


if __name__ == "__main__":
    main(*sys.argv[1:])
