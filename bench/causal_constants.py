#!/usr/bin/env python3
"""Writes the constants that PyTorch's export of GPT-2 names but, without its data, does not have: the positions and
the causal mask. `headroom run --model gpt2.onnx --weights FILE` takes them; without them every score is hidden, and
attention has all of them to do.

usage: causal_constants.py FILE.safetensors [POSITIONS, 512 unless given]
"""
import json
import struct
import sys


def write(path, count):
    """The constants for `count` positions, as a file of safetensors."""
    tensors = {
        "unsqueeze": ("I64", [1, count], struct.pack(f"<{count}q", *range(count))),
        "unsqueeze_9": ("I64", [1, 1, count, 1], struct.pack(f"<{count}q", *range(count))),
        "unsqueeze_12": ("I64", [1, 1, 1, count], struct.pack(f"<{count}q", *range(count))),
        "le_1": ("BOOL", [1, 1, count, count],
                 bytes(key <= query for query in range(count) for key in range(count))),
    }
    header, data = {}, b""
    for name, (dtype, shape, content) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    write(sys.argv[1], int(sys.argv[2]) if len(sys.argv) == 3 else 512)
