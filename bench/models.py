#!/usr/bin/env python3
"""Training and inference of nets from ONNX files beside PyTorch, in turns in one run on one GPU or core.

usage: models.py HEADROOM FOLDER [--work train infer] [--nets NET...] [--programs eager compile jax]
                 [--precision bf16|tf32] [--rounds N] [--steps N] [--lora RANK] [--json FILE] [--cpu] [-- OPTION...]

FOLDER has PyTorch's exports, NET.legacy_train.onnx or NET.dynamo_eval.onnx, also with .gz: the first is taken for
training if it is there, the second for inference; nets.py writes them.
OPTION goes to `headroom run`, --plan packed unless given. PyTorch runs the same nets of torchvision, timm and
transformers: training in eager mode and by torch.compile, bf16 by autocast over f32 weights, SGD; inference with
weights in bf16 as a CUDA graph and by torch.compile with mode reduce-overhead. Plain JAX trains the nets of
models_in_jax.py. Images have channels last. With --precision tf32 all train in f32, with products in TF32. With --cpu both run in f32 on
one core, PyTorch in eager mode. Every program is a process of its own, and the data is on the device. Prints, for each
net and work, ms a step (the least of the medians of all rounds) and MiB that are allocated at the peak.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import nets
from net_files import INFERENCE, OTHERS, TRAINING, WORDS, find_file

MIB = 2**20
LORA_TARGETS = ["q", "v"]


def add_adapters(torch, net, rank, targets):
    """Freezes the net in bf16 and adds adapters of this rank to the dense layers TARGET_proj, as peft computes them."""
    from torch import nn

    class Adapted(nn.Module):
        def __init__(self, base):
            super().__init__()
            self.base = base
            self.a = nn.Linear(base.in_features, rank, bias=False, device=base.weight.device)
            self.b = nn.Linear(rank, base.out_features, bias=False, device=base.weight.device)
            nn.init.zeros_(self.b.weight)

        def forward(self, x):
            return self.base(x) + self.b(self.a(x))

    net.requires_grad_(False).bfloat16()
    for module in list(net.modules()):
        for part, child in list(module.named_children()):
            if isinstance(child, nn.Linear) and part in [f"{target}_proj" for target in targets]:
                setattr(module, part, Adapted(child))


def run_in_torch(name, work, how, batch, steps, precision, parallel=None, lora=0):
    """Measures one work of a net; `parallel` wraps a net that trains beside others."""
    import torch
    from torch.nn import functional as F

    is_cpu = how == "cpu"
    device = "cpu" if is_cpu else "cuda"
    torch.set_num_threads(1 if is_cpu else torch.get_num_threads())

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    torch.manual_seed(0)
    net, extent = nets.make(name)
    net = net.to(device)
    if extent:
        net = net.to(memory_format=torch.channels_last)
        x = torch.randn(batch, 3, extent, extent, device=device).to(memory_format=torch.channels_last)
    else:
        x = torch.randint(0, 1000, (batch, WORDS), device=device)

    if work == "infer":
        net = net.eval() if is_cpu else net.eval().bfloat16()
        x = x.bfloat16() if extent and not is_cpu else x
        run = torch.compile(net, mode="reduce-overhead") if how == "compile" else net
        with torch.no_grad():
            if is_cpu:
                return measure(torch, lambda: nets.logits(name, run, x), steps)
            if how != "compile":
                stream = torch.cuda.Stream()
                with torch.cuda.stream(stream):
                    for _ in range(3):
                        nets.logits(name, run, x)
                torch.cuda.synchronize()
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):
                    nets.logits(name, run, x)
                step = graph.replay
            else:

                def step():
                    torch.compiler.cudagraph_mark_step_begin()
                    return nets.logits(name, run, x)

            return measure(torch, step, steps)
    net.train()
    if lora:
        add_adapters(torch, net, lora, LORA_TARGETS)
        optimizer = torch.optim.AdamW([p for p in net.parameters() if p.requires_grad], 1e-3)
    else:
        optimizer = torch.optim.SGD(net.parameters(), 1e-3)
    run = parallel(net) if parallel else net
    run = torch.compile(run) if how == "compile" else run
    half = torch.autocast(device, torch.bfloat16, enabled=precision == "bf16" and not is_cpu)
    with torch.no_grad(), half:
        shape = nets.logits(name, net, x[:2]).shape
    classes = shape[-1] if len(shape) < 4 else shape[1]
    y = torch.randint(0, classes, (batch,) + tuple(shape[1:-1] if len(shape) < 4 else shape[2:]), device=device)

    def step():
        optimizer.zero_grad()
        with half:
            z = nets.logits(name, run, x)
            loss = F.cross_entropy(z.flatten(0, 1), y.flatten()) if z.dim() == 3 else F.cross_entropy(z, y)
        loss.backward()
        optimizer.step()

    return measure(torch, step, steps)


def measure(torch, step, steps):
    """The median of ten groups of steps, as headroom run counts; the first steps prepare."""
    on_gpu = torch.cuda.is_initialized()
    wait = torch.cuda.synchronize if on_gpu else lambda: None
    for _ in range(5 if on_gpu else 1):
        step()
    wait()
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    group, times = max(1, steps // 10), []
    for _ in range(min(steps, 10)):
        start = time.perf_counter()
        for _ in range(group):
            step()
        wait()
        times.append(1e3 * (time.perf_counter() - start) / group)
    return {"ms": statistics.median(times), "mib": torch.cuda.max_memory_allocated() / MIB if on_gpu else 0}


def run_in_headroom(options, path, work, batch, steps):
    command = [options.headroom, "run", "--model", path, "--batch", str(batch), "--steps", str(steps), "--optimizer"]
    lora = ["--lora", str(options.lora), "--lora-targets", ",".join(LORA_TARGETS)]
    command += ["adamw", *lora] if options.lora else ["sgd"]
    command += ["--json", "--device"]
    command += ["cpu", "--intra-op-threads", "1"] if options.cpu else ["cuda"]
    if not options.cpu:
        command += ["--precision", "bf16"] if options.precision == "bf16" else ["--math", "tf32"]
    if work == "infer":
        command.append("--inference")
    done = subprocess.run(command + (options.rest or ["--plan", "packed"]), capture_output=True, text=True)
    if done.returncode:
        return {"error": ((done.stdout + done.stderr).strip().splitlines() or ["no output"])[-1][:200]}
    result = json.loads(done.stdout)
    return {"ms": 1e3 * result["seconds_per_step"], "mib": result["peak_allocated_bytes"] / MIB,
            "process_mib": result["peak_process_bytes"] / MIB}


def run_child(name, work, how, batch, steps, precision, lora):
    words = [sys.executable, __file__, "--child", name, work, how, str(batch), str(steps), precision, str(lora)]
    # JAX would take three quarters of the card beforehand.
    environment = os.environ | {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    done = subprocess.run(words, capture_output=True, text=True, env=environment)
    if done.returncode:
        return {"error": (done.stderr.strip().splitlines() or ["no output"])[-1][:200]}
    return json.loads(done.stdout.splitlines()[-1])


def main():
    if sys.argv[1:2] == ["--child"]:
        name, work, how, batch, steps, precision, lora = sys.argv[2:]
        if how == "jax":
            import models_in_jax

            print(json.dumps(models_in_jax.measure(name, int(batch), WORDS, int(steps), precision)))
        else:
            print(json.dumps(run_in_torch(name, work, how, int(batch), int(steps), precision, lora=int(lora))))
        return
    words = sys.argv[1:]
    rest = words[words.index("--") + 1:] if "--" in words else []
    words = words[: words.index("--")] if "--" in words else words
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("headroom")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--work", nargs="+", choices=["train", "infer"], default=["train", "infer"])
    parser.add_argument("--nets", nargs="+", choices=[*TRAINING, *OTHERS])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--steps", type=int, default=60, help="of training; ten times as many of inference")
    parser.add_argument("--json", type=argparse.FileType("w"))
    parser.add_argument("--programs", nargs="*", choices=["eager", "compile", "jax"], default=["eager", "compile"])
    parser.add_argument("--precision", choices=["bf16", "tf32"], default="bf16")
    parser.add_argument("--lora", type=int, default=0, help="train adapters of this rank, by AdamW")
    parser.add_argument("--cpu", action="store_true")
    options = parser.parse_args(words)
    options.rest = rest
    print(f"{'net':10} {'work':5} {'batch':>5} {'program':8} {'ms':>9} {'of ours':>8} {'MiB':>9}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        unpacked = pathlib.Path(folder)
        for work in options.work:
            batches = TRAINING if work == "train" else INFERENCE
            steps = options.steps if work == "train" else 10 * options.steps
            named = batches if work == "infer" else {**batches, **OTHERS}
            for name in options.nets or batches:
                if name not in named:
                    continue
                path = find_file(options.folder, name, work, unpacked)
                others = list(options.programs)
                if work == "infer":
                    others = ["graph" if how == "eager" else how for how in others if how != "jax"]
                if name == "unet" and "jax" in others:
                    others.remove("jax")
                others = ["cpu"] if options.cpu else others
                results = {how: [] for how in ["headroom", *others]}
                for _ in range(options.rounds):
                    for how, runs in results.items():
                        arguments = (work, named[name], steps)
                        runs.append(run_in_headroom(options, path, *arguments) if how == "headroom" else
                                    run_child(name, work, how, *arguments[1:], options.precision, options.lora))
                ours = None
                for how, runs in results.items():
                    done = [run for run in runs if "ms" in run]
                    record = {"net": name, "work": work, "batch": named[name], "program": how, "runs": runs}
                    if options.json:
                        print(json.dumps(record), file=options.json, flush=True)
                    if not done:
                        print(f"{name:10} {work:5} {named[name]:5} {how:8} {runs[0]['error']}", flush=True)
                        continue
                    best = min(done, key=lambda run: run["ms"])
                    ours = best["ms"] if how == "headroom" else ours
                    ratio = f"{best['ms'] / ours:8.3f}" if ours else " " * 8
                    print(f"{name:10} {work:5} {named[name]:5} {how:8} {best['ms']:9.3f} {ratio} {best['mib']:9.0f}",
                          flush=True)


if __name__ == "__main__":
    main()
