#!/usr/bin/env python3
"""Exports nets of models.py without their weights: nets.py FOLDER [NET...]

Writes NET.legacy_train.onnx for nets of images, and NET.dynamo_eval.onnx for those of texts and those that models.py times
in inference. Needs PyTorch, torchvision, timm, Transformers, onnx and onnxscript. The nets of Llama's class have 12 layers of 768 with 12 heads, an MLP of 2,048
and 32,000 words: 134 million parameters for Llama, fewer where heads share keys; llama_1b has the sizes of Llama 3.2 1B.
"""
import pathlib
import sys
import tempfile

from net_files import INFERENCE, OTHERS, TRAINING, WORDS

SIZES = {"vocab_size": 32000, "hidden_size": 768, "intermediate_size": 2048, "num_hidden_layers": 12,
         "num_attention_heads": 12, "max_position_embeddings": 2048, "use_cache": False}
LLAMA_CLASS = {"llama": {},
               "llama_1b": {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16,
                            "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
                            "tie_word_embeddings": True}, "qwen3": {"num_key_value_heads": 4, "head_dim": 64},
               "mistral": {"num_key_value_heads": 4, "sliding_window": 256},
               "gemma2": {"num_key_value_heads": 4, "head_dim": 64, "sliding_window": 256}}


def make_text_net(name):
    import transformers

    if name in LLAMA_CLASS:
        kind = name.partition("_")[0].capitalize()
        config = getattr(transformers, kind + "Config")(**{**SIZES, **LLAMA_CLASS[name]})
        # Only plain attention has Gemma's soft cap.
        config._attn_implementation = "eager" if name == "gemma2" else "sdpa"
        return getattr(transformers, kind + "ForCausalLM")(config)
    if name == "gpt2":
        none = {f"{part}_pdrop": 0.0 for part in ("resid", "embd", "attn")}
        return transformers.GPT2LMHeadModel(transformers.GPT2Config(use_cache=False, **none))
    if name == "t5":  # T5-small, without dropout as the others
        config = transformers.T5Config(d_model=512, d_kv=64, d_ff=2048, num_layers=6, num_heads=8, dropout_rate=0.0,
                                       use_cache=False)
        return transformers.T5ForConditionalGeneration(config)
    none = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return transformers.BertForMaskedLM(transformers.BertConfig(**none))


def make_unet():
    import torch
    from torch import nn

    class Block(nn.Sequential):
        def __init__(self, before, after):
            layers = []
            for channels in (before, after):
                layers += [nn.Conv2d(channels, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU(True)]
            super().__init__(*layers)

    class UNet(nn.Module):
        def __init__(self, widths=(64, 128, 256, 512, 1024)):
            super().__init__()
            pairs = list(zip(widths, widths[1:]))[::-1]
            self.down = nn.ModuleList(Block(a, b) for a, b in zip((3,) + widths, widths))
            self.up = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, 2) for a, b in pairs)
            self.merge = nn.ModuleList(Block(b, a) for a, b in pairs)
            self.head = nn.Conv2d(widths[0], 21, 1)

        def forward(self, x):
            kept = []
            for i, block in enumerate(self.down):
                x = block(x if i == 0 else torch.nn.functional.max_pool2d(x, 2))
                kept.append(x)
            for i, (up, merge) in enumerate(zip(self.up, self.merge)):
                x = merge(torch.cat([up(x), kept[-2 - i]], 1))
            return self.head(x)

    return UNet()


def make(name):
    """The net, and the extent of the images that it takes; of texts nothing."""
    if name in LLAMA_CLASS or name in ("gpt2", "bert", "t5"):
        return make_text_net(name), None
    if name == "unet":
        return make_unet(), 256
    if name == "vit_small":
        import timm

        return timm.create_model("vit_small_patch16_224"), 224
    import torchvision

    if name == "deeplabv3_resnet50":
        return torchvision.models.segmentation.deeplabv3_resnet50(weights_backbone=None), 256
    return torchvision.models.get_model(name), 224


def logits(name, net, x):
    """One tensor of what the net answers: the classes of images or of their points, the words of texts."""
    if x.is_floating_point():
        y = net(x)
    else:
        y = net(input_ids=x, decoder_input_ids=x) if name == "t5" else net(input_ids=x)
    return y["out"] if name == "deeplabv3_resnet50" else getattr(y, "logits", y)


def save_without_weights(model, path):
    """Names the larger floats of a model as data beside it, which is not there: a reader draws them. Positions, masks and
    extents stay."""
    import onnx

    for tensor in model.graph.initializer:
        if len(tensor.raw_data) > 1024 and tensor.data_type == onnx.TensorProto.FLOAT:
            tensor.ClearField("raw_data")
            tensor.data_location = onnx.TensorProto.EXTERNAL
            tensor.external_data.add(key="location", value="weights")
    onnx.save(model, path)


def export(name, folder):
    import onnx
    import torch

    net, extent = make(name)

    class Logits(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net

        def forward(self, x):
            return logits(name, self.net, x)

    if extent:
        path = folder / f"{name}.legacy_train.onnx"
        torch.onnx.export(Logits().train(), (torch.randn(2, 3, extent, extent),), path, dynamo=False, opset_version=18,
                          training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False, input_names=["x"],
                          dynamic_axes={"x": {0: "batch"}})
        save_without_weights(onnx.load(path), path)
    if not extent or name in INFERENCE:
        x = torch.randn(2, 3, extent, extent) if extent else torch.randint(0, 1000, (2, WORDS))
        with torch.no_grad():
            program = torch.onnx.export(Logits().eval(), (x,), dynamo=True, opset_version=20,
                                        dynamic_shapes=({0: torch.export.Dim("batch")},))
        with tempfile.TemporaryDirectory() as whole:
            program.save(f"{whole}/whole.onnx", external_data=True)
            save_without_weights(onnx.load(f"{whole}/whole.onnx"), folder / f"{name}.dynamo_eval.onnx")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    for net in sys.argv[2:] or [*TRAINING, *OTHERS]:
        export(net, pathlib.Path(sys.argv[1]))
