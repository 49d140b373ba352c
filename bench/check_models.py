"""Compares training of exported nets with PyTorch: bench/check_models.py HEADROOM FOLDER [NET...]

Makes small nets of torchvision, timm and transformers (those that are installed) and of layers of PyTorch, exports each
by both exporters into FOLDER, and trains each file on the CPU by the command HEADROOM for six steps of SGD. A line for
each file: how far its losses, its first gradients and its output are from PyTorch's, relative to their size, beside how
far PyTorch in f32 is from itself in f64. Batch normalization of few numbers can make the two of PyTorch differ by more
than a share of them; such a net says nothing. NET is the beginning of a name, such as hf_ or tv_mobilenet.
"""

import contextlib
import copy
import io
import json
import logging
import os
import subprocess
import sys
import warnings

import torch
from torch import nn
from torch.nn import functional as F

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)
torch.set_num_threads(1)

STEPS, RATE = 6, 0.05
NETS = {}


def net(name):
    def add(make):
        NETS[name] = make
        return make

    return add


def images(count=4, size=64, channels=3, classes=10):
    return torch.randn(count, channels, size, size), torch.randint(0, classes, (count,))


def text(count=4, length=16, words=96):
    return torch.randint(0, words, (count, length)), torch.randint(0, words, (count, length))


def add_torchvision(name, size=64, **options):
    @net("tv_" + name)
    def make():
        import torchvision

        return getattr(torchvision.models, name)(num_classes=10, **options), images(size=size)


def add_timm(name, size=64):
    @net("timm_" + name)
    def make():
        import timm

        return timm.create_model(name, num_classes=10), images(count=2, size=size)


class Logits(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x).logits


def add_transformers(name, kind, data=text, **options):
    @net("hf_" + name)
    def make():
        import transformers

        # "BertForMaskedLM": its settings are BertConfig.
        config = getattr(transformers, kind.split("For")[0].replace("LMHeadModel", "") + "Config")
        settings = config(**options)
        settings.use_cache = False
        return Logits(getattr(transformers, kind)(settings)), data()


for name in ("mobilenet_v2", "mobilenet_v3_small", "mnasnet0_5"):
    add_torchvision(name, dropout=0.0)
for name in ("shufflenet_v2_x0_5", "resnext50_32x4d", "densenet121", "regnet_y_400mf"):
    add_torchvision(name)
add_torchvision("convnext_tiny", stochastic_depth_prob=0.0)
for name in ("mobilevit_xxs", "poolformer_s12", "edgenext_xx_small", "ghostnet_100", "res2net50_26w_4s"):
    add_timm(name)
for name in ("pvt_v2_b0", "eca_nfnet_l0", "hrnet_w18_small", "repvgg_a0", "mobilenetv4_conv_small"):
    add_timm(name)
for name in ("levit_128s", "mixer_s32_224", "xcit_nano_12_p16_224"):
    add_timm(name, 224)

WORDS = {"vocab_size": 96, "max_position_embeddings": 32}
SMALL = {**WORDS, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
GROUPED = {**SMALL, "num_key_value_heads": 2}
for name, kind in (("bert", "Bert"), ("roberta", "Roberta"), ("deberta_v2", "DebertaV2")):
    add_transformers(name, kind + "ForMaskedLM", **SMALL, **NO_DROPOUT)
add_transformers("albert", "AlbertForMaskedLM", **SMALL, **NO_DROPOUT, embedding_size=16)
add_transformers("electra", "ElectraForMaskedLM", **SMALL, **NO_DROPOUT, embedding_size=32)
for name, kind in (("llama", "Llama"), ("mistral", "Mistral"), ("qwen2", "Qwen2")):
    add_transformers(name, kind + "ForCausalLM", **GROUPED)
for name, kind in (("qwen3", "Qwen3"), ("gemma2", "Gemma2")):
    add_transformers(name, kind + "ForCausalLM", **GROUPED, head_dim=8)
add_transformers("olmo", "OlmoForCausalLM", **SMALL)
add_transformers("gpt_neox", "GPTNeoXForCausalLM", **SMALL)
add_transformers("bloom", "BloomForCausalLM", vocab_size=96, hidden_size=32, n_layer=2, n_head=4)
add_transformers(
    "vit",
    "ViTForImageClassification",
    data=lambda: images(size=32),
    **{key: value for key, value in SMALL.items() if key not in WORDS},
    **NO_DROPOUT,
    image_size=32,
    patch_size=8,
    num_labels=10,
)


class Recurrent(nn.Module):
    def __init__(self, kind, **options):
        super().__init__()
        self.embed = nn.Embedding(50, 16, padding_idx=0)
        self.layers = kind(16, 24, batch_first=True, **options)
        self.head = nn.Linear(48 if options.get("bidirectional") else 24, 5)

    def forward(self, x):
        return self.head(self.layers(self.embed(x))[0].mean(1))


def words_of_classes():
    return torch.randint(0, 50, (4, 12)), torch.randint(0, 5, (4,))


@net("own_lstm")
def make_lstm():
    return Recurrent(nn.LSTM, num_layers=2, bidirectional=True), words_of_classes()


@net("own_gru")
def make_gru():
    return Recurrent(nn.GRU), words_of_classes()


@net("own_rnn")
def make_rnn():
    return Recurrent(nn.RNN, nonlinearity="relu"), words_of_classes()


@net("own_encoder")
def make_encoder():
    layer = nn.TransformerEncoderLayer(16, 2, 32, 0.0, batch_first=True, norm_first=True)
    layers = [nn.Linear(5, 16), nn.TransformerEncoder(layer, 2), nn.Flatten(), nn.Linear(144, 7)]
    return nn.Sequential(*layers), (torch.randn(4, 9, 5), torch.randint(0, 7, (4,)))


class Volumes(nn.Module):
    """3-D layers: convolutions forward and transposed, with strides, groups and dilation, and both kinds of pools."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv3d(2, 8, 3, padding=1), nn.BatchNorm3d(8), nn.ReLU(), nn.MaxPool3d(3, 2, 1),
            nn.Conv3d(8, 8, (3, 1, 3), (2, 1, 1), (2, 0, 1), dilation=(2, 1, 1), groups=4), nn.ReLU(),
            nn.ConvTranspose3d(8, 6, (3, 2, 4), 2, (1, 0, 1)), nn.ReLU(), nn.AvgPool3d(2, ceil_mode=True, padding=1))
        self.head = nn.Linear(6, 5)

    def forward(self, x):
        return self.head(self.layers(x).mean((2, 3, 4)))


@net("own_volumes")
def make_volumes():
    return Volumes(), (torch.randn(3, 2, 8, 9, 10), torch.randint(0, 5, (3,)))


class Warp(nn.Module):
    """A spatial transformer: the image is sampled at places that a layer computes from it."""

    def __init__(self, **options):
        super().__init__()
        self.where = nn.Linear(3 * 64, 6)
        self.options = options
        self.layer = nn.Conv2d(3, 8, 3)
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        theta = 0.3 * self.where(x.flatten(1)).view(-1, 2, 3) + torch.eye(2, 3, dtype=x.dtype)
        places = torch.tensor([[-1.0, 0, 1], [1, 0.5, 1], [0.2, -0.7, 1], [-0.4, 0.9, 1]], dtype=x.dtype)
        grid = (places.repeat(4, 1) @ theta.transpose(1, 2)).view(-1, 4, 4, 2)
        return self.head(self.layer(F.grid_sample(x, grid, **self.options)).mean((2, 3)))


for name, options in (
    ("zeros", {"align_corners": False}),
    ("border", {"padding_mode": "border", "align_corners": True}),
    ("reflection", {"padding_mode": "reflection", "align_corners": False, "mode": "bicubic"}),
):
    NETS["own_warp_" + name] = lambda options=options: (
        Warp(**options),
        (torch.randn(4, 3, 8, 8), torch.randint(0, 5, (4,))),
    )


def without_randomness(model):
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        if type(module).__name__ == "DropPath":
            module.drop_prob = 0.0
    return model


def loss_of(output, labels):
    if output.dim() == 3 and labels.dim() == 2:
        return F.cross_entropy(output.flatten(0, 1), labels.flatten())
    return F.cross_entropy(output, labels)


def train(model, x, y):
    """The losses of all steps and the gradients of the first."""
    optimizer = torch.optim.SGD(model.parameters(), RATE)
    losses, gradients = [], {}
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(model(x), y)
        loss.backward()
        losses.append(loss.item())
        if step == 0:
            named = model.named_parameters()
            gradients = {name: p.grad.clone() for name, p in named if p.grad is not None}
        optimizer.step()
    return losses, gradients


def relative(losses, expected):
    return max(abs(a - b) / abs(b) for a, b in zip(losses, expected, strict=True))


def export(model, x, path, exporter):
    if exporter == "dynamo":
        free = ({0: torch.export.Dim("batch", min=1, max=4096)},)
        torch.onnx.export(
            model.eval(), (x,), path, dynamo=True, external_data=False, verbose=False, optimize=False,
            dynamic_shapes=free,
        )  # fmt: skip
    else:
        torch.onnx.export(
            model.train(), (x,), path, dynamo=False, training=torch.onnx.TrainingMode.TRAINING,
            do_constant_folding=False, input_names=["x"], dynamic_axes={"x": {0: "batch"}},
        )  # fmt: skip


def check(headroom, folder, name):
    from safetensors.torch import save_file

    torch.manual_seed(0)
    model, (x, y) = NETS[name]()
    model = without_randomness(model)
    with torch.no_grad():
        output = copy.deepcopy(model).eval()(x).contiguous()
    losses, gradients = train(copy.deepcopy(model).train(), x, y)
    wide_x = x.double() if x.is_floating_point() else x
    wide_losses, wide_gradients = train(copy.deepcopy(model).double().train(), wide_x, y)
    scale = max(g.abs().max().item() for g in wide_gradients.values())
    noise = max((g - gradients[n].double()).abs().max().item() for n, g in wide_gradients.items()) / scale
    data = os.path.join(folder, name + ".safetensors")
    reference = {"x": x, "y": y, "eval_output": output}
    reference.update({"grad." + n: g.contiguous() for n, g in gradients.items()})
    save_file(reference, data)
    for exporter in ("dynamo", "legacy"):
        path = os.path.join(folder, f"{name}.{exporter}.onnx")
        try:
            with contextlib.redirect_stdout(io.StringIO()):  # where exporters print whole graphs
                export(copy.deepcopy(model), x, path, exporter)
        except Exception as error:  # what an exporter cannot do
            print(f"{name}.{exporter}: not exported: {str(error).splitlines()[0][:100]}", flush=True)
            continue
        command = [headroom, "train", "--model", path, "--data", data, "--loss", "cross-entropy"]
        command += ["--optimizer", "sgd", "--learning-rate", str(RATE), "--steps", str(STEPS)]
        run = subprocess.run([*command, "--device", "cpu", "--json"], capture_output=True, text=True, check=False)
        if run.returncode != 0:
            print(f"{name}.{exporter}: {run.stderr.strip()}", flush=True)
            continue
        result = json.loads(run.stdout)
        print(
            f"{name}.{exporter}: losses {relative(result['losses'], losses):.1e} "
            f"({relative(wide_losses, losses):.1e}), gradients {result['gradients_error']:.1e} ({noise:.1e}), "
            f"output {result['eval_output_error']:.1e}",
            flush=True,
        )


def main():
    if len(sys.argv) < 3 or sys.argv[1] in ("-h", "--help"):
        sys.exit(__doc__)
    headroom, folder = sys.argv[1], sys.argv[2]
    os.makedirs(folder, exist_ok=True)
    for name in NETS:
        if len(sys.argv) == 3 or any(name.startswith(asked) for asked in sys.argv[3:]):
            try:
                check(headroom, folder, name)
            except ModuleNotFoundError as error:
                print(f"{name}: needs {error.name}", flush=True)


if __name__ == "__main__":
    main()
