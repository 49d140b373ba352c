"""The nets of models.py and budgets.py, and PyTorch's exports of them."""
import gzip
import shutil
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
