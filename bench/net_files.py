"""The nets of models.py and budgets.py, and PyTorch's exports of them. Run with a file's name, it writes the constants that
the export of GPT-2 lacks: net_files.py FILE.safetensors"""
import gzip
import json
import shutil
import struct
import sys

WORDS = 512  # of a text
# Rows of a step.
TRAINING = {"resnet50": 256, "gpt2": 32, "bert": 32, "vit_small": 128, "unet": 16}
INFERENCE = {"resnet50": 1, "gpt2": 1}
# Trained only where they are named.
OTHERS = {"llama": 16, "llama_1b": 8, "qwen3": 16, "mistral": 16, "gemma2": 16, "convnext_tiny": 64, "swin_t": 64, "densenet121": 64,
          "efficientnet_b0": 128, "deeplabv3_resnet50": 16, "vgg16": 64, "t5": 32}


def find_file(folder, name, work, unpacked):
    """NET.KIND.onnx of the folder, or of NET.KIND.onnx.gz in the folder `unpacked`."""
    kinds = ["legacy_train", "dynamo_eval"] if work == "train" else ["dynamo_eval", "legacy_train"]
    for kind in kinds:
        for path in (folder / f"{name}.{kind}.onnx", folder / f"{name}.{kind}.onnx.gz"):
            if not path.exists():
                continue
            if path.suffix != ".gz":
                return path
            to = unpacked / path.stem
            with gzip.open(path) as packed, open(to, "wb") as file:
                shutil.copyfileobj(packed, file)
            return to
    sys.exit(f"{folder} has no export of {name}")


def write_causal_constants(path, count=WORDS):
    """Writes the positions and the causal mask that PyTorch's export of GPT-2 names but does not
    contain without its data. `headroom run --model gpt2.onnx --weights FILE` takes them. Without
    them every score is hidden, and attention has to compute all of them."""
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
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    write_causal_constants(sys.argv[1])
