"""Measures programs under torch.compile on a GPU and compares `headroom predict` with them.

On a machine with a GPU:     bench/check_compile.py --measure compile.csv [NET...]
On any, with a measurement:  bench/check_compile.py --predict compile.csv [NET...]

--measure runs each net's first four steps in a fresh process with a fresh cache of Inductor, so that all kernels are
compiled and timed, and once more in another process that finds them in the cache. --eager measures the nets without
torch.compile as well. --snapshot FOLDER keeps the memory snapshot, and the code that Inductor wrote, of each net's
first run there. --predict prints one row of Markdown for each net, and a summary; without a file it prints the
predictions alone. `headroom` is taken from PATH, and HEADROOM_PYTHON names the Python that has PyTorch, torchvision,
timm and Transformers. Weights are random; nothing is downloaded.
"""

import argparse
import csv
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import torch
import torch.nn.functional as F
from torch import nn

CUDA = "cuda"
MIB = 2**20
STEPS = 4
COMPILES = os.environ.get("CHECK_COMPILE_EAGER") != "1"


def compiled(function, **options):
    return torch.compile(function, **options) if COMPILES else function


# Steps.


def train(loss_of, optimizer, dtype=None):
    """A step that minimizes what `loss_of` gives, in autocast where a type is given; otherwise with TF32."""
    torch.backends.cuda.matmul.allow_tf32 = True

    def step():
        optimizer.zero_grad()
        with torch.autocast(CUDA, dtype or torch.bfloat16, enabled=dtype is not None):
            loss = loss_of()
        loss.backward()
        optimizer.step()

    return step


def infer(output_of, dtype=None):
    torch.backends.cuda.matmul.allow_tf32 = True

    def step():
        with torch.no_grad(), torch.autocast(CUDA, dtype or torch.bfloat16, enabled=dtype is not None):
            return output_of()

    return step


def images(batch, size=224, classes=1000):
    return torch.randn(batch, 3, size, size, device=CUDA), torch.randint(classes, (batch,), device=CUDA)


def words(batch, length, count):
    return torch.randint(count, (batch, length), device=CUDA)


def classify(net, inputs, targets, optimizer, dtype=None):
    return train(lambda: F.cross_entropy(net(inputs), targets), optimizer, dtype)


# torchvision.


def make_resnet50(batch=32):
    import torchvision

    net = torchvision.models.resnet50().to(CUDA)
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    return classify(compiled(net), *images(batch), optimizer, torch.bfloat16)


def make_mobilenet(batch=32):
    import torchvision

    net = torchvision.models.mobilenet_v3_large().to(CUDA, memory_format=torch.channels_last)
    inputs, targets = images(batch)
    inputs = inputs.to(memory_format=torch.channels_last)
    return classify(compiled(net), inputs, targets, torch.optim.RMSprop(net.parameters()))


def make_vit_inference(batch=64):
    import torchvision

    net = compiled(torchvision.models.vit_b_16().to(CUDA).eval())
    inputs, _ = images(batch)
    return infer(lambda: net(inputs), torch.bfloat16)


# timm.


def make_convnext(batch=32):
    import timm

    net = timm.create_model("convnext_tiny").to(CUDA)
    return classify(compiled(net), *images(batch), torch.optim.AdamW(net.parameters()), torch.bfloat16)


def make_swin(batch=16):
    import timm

    net = timm.create_model("swin_tiny_patch4_window7_224").to(CUDA)
    return classify(compiled(net), *images(batch), torch.optim.AdamW(net.parameters(), fused=True))


# Transformers.


def make_gpt2(batch=8):
    from transformers import GPT2Config, GPT2LMHeadModel

    net = GPT2LMHeadModel(GPT2Config()).to(CUDA)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
    net, tokens = compiled(net), words(batch, 512, 50257)
    return train(lambda: net(tokens, labels=tokens).loss, optimizer, torch.bfloat16)


def make_bert(batch=16):
    from transformers import BertConfig, BertForMaskedLM

    net = BertForMaskedLM(BertConfig()).to(CUDA)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
    net, tokens = compiled(net), words(batch, 256, 30522)
    return train(lambda: net(tokens, labels=tokens).loss, optimizer)


def make_llama(batch=4):
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = dict(vocab_size=32000, hidden_size=1024, intermediate_size=2816, num_hidden_layers=12)
    net = LlamaForCausalLM(LlamaConfig(num_attention_heads=16, num_key_value_heads=4, use_cache=False, **sizes))
    net = net.to(CUDA, torch.bfloat16)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
    net, tokens = compiled(net), words(batch, 1024, 32000)
    return train(lambda: net(input_ids=tokens, labels=tokens).loss, optimizer)


def make_qwen3_inference(batch=8):
    from transformers import Qwen3Config, Qwen3ForCausalLM

    sizes = dict(vocab_size=32000, hidden_size=1024, intermediate_size=3072, num_hidden_layers=16)
    net = Qwen3ForCausalLM(Qwen3Config(num_attention_heads=16, num_key_value_heads=8, head_dim=64, **sizes))
    net = compiled(net.to(CUDA, torch.bfloat16).eval())
    tokens = words(batch, 1024, 32000)
    return infer(lambda: net(input_ids=tokens, use_cache=False).logits)


# Own ones.


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.qkv(x).split(width, dim=2)
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in parts)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.1))

    def forward(self, x):
        x = x + self.attention(self.first(x))
        return x + self.mlp(self.second(x))


class Language(nn.Module):
    def __init__(self, count=50304, width=768, heads=12, layers=8, length=1024):
        super().__init__()
        self.words, self.places = nn.Embedding(count, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens):
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return F.linear(self.norm(x), self.words.weight)


def make_nanogpt(batch=8):
    """A compiled function that has the loss as well."""
    net = Language().to(CUDA)
    tokens = words(batch, 1024, 50304)
    optimizer = torch.optim.AdamW(net.parameters(), fused=True)

    @compiled
    def loss_of(tokens):
        return F.cross_entropy(net(tokens).flatten(0, 1), tokens.flatten())

    return train(lambda: loss_of(tokens), optimizer, torch.bfloat16)


class Level(nn.Sequential):
    def __init__(self, before, after):
        super().__init__(
            nn.Conv2d(before, after, 3, padding=1, bias=False),
            nn.BatchNorm2d(after),
            nn.ReLU(inplace=True),
            nn.Conv2d(after, after, 3, padding=1, bias=False),
            nn.BatchNorm2d(after),
            nn.ReLU(inplace=True),
        )


class Unet(nn.Module):
    def __init__(self, classes=21, widths=(64, 128, 256, 512)):
        super().__init__()
        self.down = nn.ModuleList(Level(a, b) for a, b in zip((3, *widths), widths))
        self.enlarge = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, 2) for a, b in zip(widths, widths[1:]))
        self.up = nn.ModuleList(Level(2 * a, a) for a in widths[:-1])
        self.last = nn.Conv2d(widths[0], classes, 1)

    def forward(self, x):
        kept = []
        for level in self.down:
            x = level(F.max_pool2d(x, 2) if kept else x)
            kept.append(x)
        for index in reversed(range(len(self.up))):
            x = self.up[index](torch.cat([kept[index], self.enlarge[index](x)], 1))
        return self.last(x)


def make_unet(batch=8):
    net = Unet().to(CUDA)
    optimizer = torch.optim.Adam(net.parameters())
    inputs, _ = images(batch, 256)
    targets = torch.randint(21, (batch, 256, 256), device=CUDA)
    return classify(compiled(net), inputs, targets, optimizer, torch.bfloat16)


class Mixer(nn.Module):
    def __init__(self, width=512, places=196, layers=12, classes=1000):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * layers + 1))
        of = lambda size, hidden: nn.Sequential(nn.Linear(size, hidden), nn.SiLU(), nn.Linear(hidden, size))
        self.between = nn.ModuleList(of(places, 256) for _ in range(layers))
        self.within = nn.ModuleList(of(width, 2048) for _ in range(layers))
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        for index, (between, within) in enumerate(zip(self.between, self.within)):
            x = x + between(self.norms[2 * index](x).transpose(1, 2)).transpose(1, 2)
            x = x + within(self.norms[2 * index + 1](x))
        return self.head(self.norms[-1](x).mean(1))


def make_mixer(batch=64):
    """Compiled in two parts, with a graph break between them, and a compiled step of the optimizer."""
    net = Mixer().to(CUDA)
    optimizer = torch.optim.AdamW(net.parameters())
    inputs, targets = images(batch)
    body = compiled(net)
    update = compiled(lambda: optimizer.step())

    def step():
        optimizer.zero_grad()
        with torch.autocast(CUDA, torch.bfloat16):
            loss = F.cross_entropy(body(inputs), targets)
        loss.backward()
        update()

    return step


NETS = {
    "resnet50": make_resnet50,
    "mobilenet": make_mobilenet,
    "vit_inference": make_vit_inference,
    "convnext": make_convnext,
    "swin": make_swin,
    "gpt2": make_gpt2,
    "bert": make_bert,
    "llama": make_llama,
    "qwen3_inference": make_qwen3_inference,
    "nanogpt": make_nanogpt,
    "unet": make_unet,
    "mixer": make_mixer,
}
COLUMNS = ["net", "requested_mib", "allocated_mib", "reserved_mib", "requested_again_mib", "reserved_again_mib"]
COLUMNS += ["eager_requested_mib", "eager_reserved_mib", "each_step", "seconds"]


# On a GPU.


def run(name, snapshot):
    """Four steps of a net in this process; prints its peaks in MiB, the last as JSON."""
    if snapshot:
        torch.cuda.memory._record_memory_history(max_entries=2_000_000, stacks="python")
    torch.manual_seed(0)
    start, step, after = time.perf_counter(), NETS[name](), []
    for _ in range(STEPS):
        step()
        torch.cuda.synchronize()
        after.append((torch.cuda.max_memory_allocated() / MIB, torch.cuda.max_memory_reserved() / MIB))
    if snapshot:
        torch.cuda.memory._dump_snapshot(snapshot)
    stats = torch.cuda.memory_stats()
    said = {
        "requested": stats["requested_bytes.all.peak"] / MIB,
        "allocated": stats["allocated_bytes.all.peak"] / MIB,
        "reserved": stats["reserved_bytes.all.peak"] / MIB,
        "steps": after,
        "seconds": time.perf_counter() - start,
    }
    print(json.dumps(said))


def run_alone(name, cache, eager=False, snapshot=""):
    """Returns what run() prints in a process of its own with that cache of Inductor; None if it died."""
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": cache, "CHECK_COMPILE_EAGER": "1" if eager else "0"}
    command = [sys.executable, os.path.abspath(__file__), "--run", name, snapshot]
    result = subprocess.run(command, capture_output=True, text=True, env=environment)
    try:
        return json.loads(result.stdout.strip().splitlines()[-1])
    except (ValueError, IndexError):
        print(f"{name} died:\n{result.stderr}", file=sys.stderr)
        return None


def measure(path, names, with_eager, folder):
    rows = {}
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            rows = {row["net"]: row for row in csv.DictReader(file)}
    for name in names:
        with tempfile.TemporaryDirectory() as temporary:
            kept = folder / f"{name}-inductor" if folder else pathlib.Path(temporary)
            kept.mkdir(parents=True, exist_ok=True)
            snapshot = str(folder / f"{name}.pickle") if folder else ""
            first = run_alone(name, str(kept), snapshot=snapshot)
            again = run_alone(name, str(kept))
            eager = run_alone(name, str(kept), eager=True) if with_eager else {}
        if first is None or again is None:
            continue
        numbers = [first["requested"], first["allocated"], first["reserved"], again["requested"], again["reserved"]]
        numbers += [eager[key] if eager else None for key in ("requested", "reserved")]
        cells = ["" if number is None else f"{number:.2f}" for number in numbers]
        cells.append(" ".join(f"{allocated:.0f}/{reserved:.0f}" for allocated, reserved in first["steps"]))
        rows[name] = dict(zip(COLUMNS, [name, *cells, f"{first['seconds']:.0f}"]))
        print(" ".join(f"{key}={value}" for key, value in rows[name].items()), flush=True)
        with open(path, "w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS)
            writer.writeheader()
            writer.writerows(rows.values())


# Predictions.


def predict(name, device):
    """Requested and reserved MiB, and what of torch.compile is not covered; or Nones and the error."""
    program = f"{os.path.abspath(__file__)}:make_{name}"
    with tempfile.TemporaryDirectory() as folder:
        trace = os.path.join(folder, "run.trace")
        options = ["--steps", str(STEPS), "--device", device, "-o", trace]
        traced = subprocess.run(["headroom", "trace", program, *options], capture_output=True, text=True)
        if traced.returncode:
            return None, None, traced.stderr.strip().split("\n")[-1]
        with open(trace, encoding="utf-8") as file:
            assumed = [line.strip() for line in file if line.startswith("s,assumed,") and "compile" in line]
        command = ["headroom", "predict", trace, "--device", device, "--json"]
        answer = json.loads(subprocess.run(command, capture_output=True, text=True).stdout)
    note = assumed[0].removeprefix("s,assumed,") if assumed else ""
    return answer["peak_requested_bytes"] / MIB, answer["peak_reserved_bytes"] / MIB, note


def compare(path, names, device):
    measured = {}
    if path:
        with open(path, encoding="utf-8") as file:
            measured = {row["net"]: row for row in csv.DictReader(file)}
    errors = {"requested": [], "reserved": []}
    print("| net | requested MiB | reserved MiB | predicted | off by, % | seconds | |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name in names:
        start = time.perf_counter()
        requested, reserved, note = predict(name, device)
        seconds = time.perf_counter() - start
        row = measured.get(name)
        on_card = (row["requested_mib"], row["reserved_mib"]) if row else ("", "")
        predicted = off = ""
        if requested is not None:
            predicted = f"{requested:.2f} / {reserved:.0f}"
        if requested is not None and row:
            for kind, value, card in zip(errors, (requested, reserved), on_card):
                errors[kind].append(100 * (value / float(card) - 1))
            off = f"{errors['requested'][-1]:+.2f} / {errors['reserved'][-1]:+.2f}"
        print(f"| {name} | {on_card[0]} | {on_card[1]} | {predicted} | {off} | {seconds:.0f} | {note} |", flush=True)
    for kind, values in errors.items():
        if values:
            values = sorted(map(abs, values))
            print(f"{kind}: {len(values)} nets, median {values[len(values) // 2]:.2f} %, at most {values[-1]:.2f} %")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--measure", metavar="CSV", help="run the nets on this machine's GPU, write their peaks there")
    parser.add_argument("--predict", metavar="CSV", nargs="?", const="", help="compare predictions with these peaks")
    parser.add_argument("--eager", action="store_true", help="measure the nets without torch.compile as well")
    parser.add_argument("--snapshot", metavar="FOLDER", type=pathlib.Path, help="keep snapshots and Inductor's code")
    parser.add_argument("--device", default="h200")
    parser.add_argument("nets", nargs="*", help=", ".join(NETS))
    options = parser.parse_args()
    names = options.nets or list(NETS)
    if options.measure:
        measure(options.measure, names, options.eager, options.snapshot)
    else:
        compare(options.predict, names, options.device)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--run"]:
        run(*sys.argv[2:4])
    else:
        main()
