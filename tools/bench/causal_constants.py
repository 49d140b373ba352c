#!/usr/bin/env python3
"""Writes the constants that PyTorch's export of GPT-2 names but, without its data, does not have: the positions and
the causal mask. `headroom run --model gpt2.onnx --weights FILE` takes them; without them every score is hidden, and
attention has all of them to do.

usage: causal_constants.py FILE.safetensors [POSITIONS, 512 unless given]
"""
import json
import struct
import sys

if len(sys.argv) not in (2, 3):
    sys.exit(__doc__)
count = int(sys.argv[2]) if len(sys.argv) == 3 else 512
positions = struct.pack(f"<{count}q", *range(count))
tensors = {
    "unsqueeze": ("I64", [1, count], positions),
    "unsqueeze_9": ("I64", [1, 1, count, 1], positions),
    "unsqueeze_12": ("I64", [1, 1, 1, count], positions),
    "le_1": ("BOOL", [1, 1, count, count], bytes(key <= query for query in range(count) for key in range(count))),
}
header, data = {}, b""
for name, (dtype, shape, content) in tensors.items():
    header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
    data += content
text = json.dumps(header).encode()
text += b" " * (-len(text) % 8)
with open(sys.argv[1], "wb") as file:
    file.write(struct.pack("<Q", len(text)) + text + data)
