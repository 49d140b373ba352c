#!/usr/bin/env python3
"""Measures PyTorch's ways to train with less memory, on the nets and rows of budgets.py: run both on one GPU.

usage: budgets_in_pytorch.py [--nets NET...] [--ways WAY...] [--steps N]

Each net trains in bf16 (autocast, SGD, convolutions with channels last) in a process of its own: unchanged (eager),
compiled with torch.compile, compiled with each activation_memory_budget of 0.5, 0.33, 0.2, with each block under
torch.utils.checkpoint, and with torch.autograd.graph.save_on_cpu. Prints MiB of the process as the driver counts it, as
a share of the compiled net's, and ms per step. Needs torchvision and transformers.
"""

import argparse
import contextlib
import json
import subprocess
import sys
import time

ROWS = {"resnet50": 256, "gpt2": 32, "unet": 16}
WAYS = [
    "eager",
    "compiled",
    "budget 0.5",
    "budget 0.33",
    "budget 0.2",
    "checkpoint",
    "compiled checkpoint",
    "save_on_cpu",
]
MIB = 2**20


def unet():
    import torch

    def block(channels, out):
        layers = []
        for i in (channels, out):
            layers += [torch.nn.Conv2d(i, out, 3, padding=1, bias=False), torch.nn.BatchNorm2d(out)]
            layers += [torch.nn.ReLU(True)]
        return torch.nn.Sequential(*layers)

    class UNet(torch.nn.Module):
        widths = [64, 128, 256, 512, 1024]

        def __init__(self):
            super().__init__()
            w = self.widths
            self.down = torch.nn.ModuleList(block(i, o) for i, o in zip([3] + w, w))
            self.up = torch.nn.ModuleList(torch.nn.ConvTranspose2d(2 * o, o, 2, 2) for o in reversed(w[:-1]))
            self.merge = torch.nn.ModuleList(block(2 * o, o) for o in reversed(w[:-1]))
            self.out = torch.nn.Conv2d(w[0], 21, 1)

        def forward(self, x):
            kept = []
            for i, down in enumerate(self.down):
                x = down(x if i == 0 else torch.nn.functional.max_pool2d(x, 2))
                kept.append(x)
            for i, (up, merge) in enumerate(zip(self.up, self.merge)):
                x = merge(torch.cat([up(x), kept[3 - i]], 1))
            return self.out(x)

    return UNet()


def build(name):
    """The net, its input and target, and the blocks to checkpoint."""
    import torch

    rows = ROWS[name]
    if name == "gpt2":
        import transformers

        # No dropout and no cache, as in the exported file.
        config = transformers.GPT2Config(use_cache=False, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
        net = transformers.GPT2LMHeadModel(config).cuda()
        text = torch.randint(0, config.vocab_size, (rows, 512), device="cuda")
        return net, text, torch.randint_like(text, config.vocab_size), list(net.transformer.h)
    if name == "unet":
        net = unet()
        x = torch.randn(rows, 3, 256, 256, device="cuda")
        y = torch.randint(0, 21, (rows, 256, 256), device="cuda")
        blocks = [*net.down, *net.merge]
    else:
        import torchvision

        net = torchvision.models.resnet50()
        x = torch.randn(rows, 3, 224, 224, device="cuda")
        y = torch.randint(0, 1000, (rows,), device="cuda")
        blocks = [block for layer in (net.layer1, net.layer2, net.layer3, net.layer4) for block in layer]
    return net.cuda().to(memory_format=torch.channels_last), x.contiguous(memory_format=torch.channels_last), y, blocks


def measure(name, way, steps):
    import torch

    torch.manual_seed(0)
    net, x, y, blocks = build(name)
    net.train()
    if way.endswith("checkpoint"):
        from torch.utils.checkpoint import checkpoint

        for block in blocks:
            forward = block.forward
            block.forward = lambda *a, forward=forward, **k: checkpoint(forward, *a, use_reentrant=False, **k)
    if way.startswith("budget"):
        import torch._functorch.config

        torch._functorch.config.activation_memory_budget = float(way.split()[1])
    run = torch.compile(net) if way.startswith(("compiled", "budget")) else net
    optimizer = torch.optim.SGD(net.parameters(), 1e-3)
    on_cpu = torch.autograd.graph.save_on_cpu(pin_memory=True) if way == "save_on_cpu" else contextlib.nullcontext()
    began = 0.0
    for step in range(steps + 5):
        if step == 5:
            torch.cuda.synchronize()
            torch.cuda.empty_cache()  # what compiling and timing kernels left
            began = time.perf_counter()
        optimizer.zero_grad()
        with on_cpu, torch.autocast("cuda", torch.bfloat16):
            out = run(x)
            out = out.logits.flatten(0, 1) if name == "gpt2" else out
            loss = torch.nn.functional.cross_entropy(out, y.flatten() if name == "gpt2" else y)
        loss.backward()
        optimizer.step()
    torch.cuda.synchronize()
    ms = (time.perf_counter() - began) / steps * 1e3
    free, total = torch.cuda.mem_get_info()
    print(
        json.dumps({"ms": ms, "process_mib": (total - free) / MIB, "peak_mib": torch.cuda.max_memory_allocated() / MIB})
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nets", nargs="+", choices=list(ROWS), default=list(ROWS))
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--one", nargs=2, metavar=("NET", "WAY"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        return measure(*options.one, options.steps)
    print(f"{'net':9} {'way':20} {'process':>8} {'of it':>6} {'ms':>8} {'more':>7}", flush=True)
    for name in options.nets:
        whole = None
        for way in options.ways:
            command = [sys.executable, __file__, "--one", name, way, "--steps", str(options.steps)]
            done = subprocess.run(command, capture_output=True, text=True)
            try:
                row = json.loads(done.stdout.strip().splitlines()[-1])
            except (IndexError, json.JSONDecodeError):
                print(f"{name:9} {way:20} {(done.stderr.strip().splitlines() or ['no output'])[-1]}", flush=True)
                continue
            if way == "compiled" or whole is None:
                whole = row
            print(
                f"{name:9} {way:20} {row['process_mib']:8.0f} {row['process_mib'] / whole['process_mib']:6.0%} "
                f"{row['ms']:8.2f} {row['ms'] / whole['ms'] - 1:+7.1%}",
                flush=True,
            )


if __name__ == "__main__":
    main()
