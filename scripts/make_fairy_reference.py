#!/usr/bin/env python3
"""Cut the reference numbers of fairy (PyTorch, float32) down to what the tests keep in the repository.

usage: make_fairy_reference.py fairy.safetensors tests/data/fairy_reference.safetensors
Kept: ids, logits (last 8 positions of `page`), hidden states of `once`, greedy tokens and margins."""
import json
import struct
import sys

source, target = sys.argv[1:3]
with open(source, 'rb') as f:
    n = struct.unpack('<Q', f.read(8))[0]
    header = json.loads(f.read(n))
    data = f.read()
out, body = {}, b''
for name in sorted(header):
    if name == '__metadata__' or name.endswith('.nll') or name.startswith('long.'):
        continue
    entry = header[name]
    begin, end = entry['data_offsets']
    shape = entry['shape']
    if name == 'page.logits':
        begin, shape = end - 8 * shape[1] * 4, [8, shape[1]]
    out[name] = {'dtype': entry['dtype'], 'shape': shape, 'data_offsets': [len(body), len(body) + end - begin]}
    body += data[begin:end]
text = json.dumps(out, separators=(',', ':')).encode()
text += b' ' * (-len(text) % 8)
with open(target, 'wb') as f:
    f.write(struct.pack('<Q', len(text)) + text + body)
