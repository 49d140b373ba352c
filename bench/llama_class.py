#!/usr/bin/env python3
"""Exports the Llama-class nets of models.py without their weights: llama_class.py FOLDER [NET...]

Each has 12 layers of 768 with 12 heads, an MLP of 2,048 and 32,000 words, as models of that name of Hugging Face's
Transformers, which it needs beside PyTorch and onnxscript: 134 million parameters for Llama, fewer where heads share
keys.
"""
import pathlib
import sys
import tempfile

from net_files import LLAMA_CLASS, WORDS

SIZES = {"vocab_size": 32000, "hidden_size": 768, "intermediate_size": 2048, "num_hidden_layers": 12,
         "num_attention_heads": 12, "max_position_embeddings": 2048, "use_cache": False}
OPTIONS = {"llama": {}, "qwen3": {"num_key_value_heads": 4, "head_dim": 64},
           "mistral": {"num_key_value_heads": 4, "sliding_window": 256},
           "gemma2": {"num_key_value_heads": 4, "head_dim": 64, "sliding_window": 256}}


def make(name):
    import transformers

    kind = name.capitalize()
    config = getattr(transformers, kind + "Config")(**SIZES, **OPTIONS[name])
    # Only plain attention has Gemma's soft cap.
    config._attn_implementation = "eager" if name == "gemma2" else "sdpa"
    return getattr(transformers, kind + "ForCausalLM")(config)


def export(name, folder):
    import torch

    class Logits(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = make(name).eval()

        def forward(self, x):
            return self.net(input_ids=x).logits

    words = torch.randint(0, 1000, (2, WORDS))
    with torch.no_grad():
        program = torch.onnx.export(Logits(), (words,), dynamo=True, opset_version=20,
                                    dynamic_shapes=({0: torch.export.Dim("batch")},))
    with tempfile.TemporaryDirectory() as whole:
        path = pathlib.Path(whole) / f"{name}.dynamo_eval.onnx"
        program.save(path, external_data=True)
        (folder / path.name).write_bytes(path.read_bytes())


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    for net in sys.argv[2:] or LLAMA_CLASS:
        export(net, pathlib.Path(sys.argv[1]))
