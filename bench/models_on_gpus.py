#!/usr/bin/env python3
"""Training of nets from ONNX files on several GPUs of one host compared with PyTorch's DistributedDataParallel.

usage: models_on_gpus.py HEADROOM FOLDER [--gpus N] [--nets NET...] [--plans PLAN...] [--programs eager compile]
                         [--steps N] [--batch N] [--seconds N] [--device NAME] [--json FILE]

FOLDER has the files that models.py takes. Each net trains on one GPU, and on N GPUs with N times the batch: `headroom
run --replicas N --precision bf16 --optimizer sgd`, and PyTorch with SGD and autocast to bf16, one process a GPU.
PyTorch's step alone is measured in the first of these processes while the others wait. A line for each: ms a step
alone and together (medians of ten groups of steps), and the efficiency, alone / together. A program that fails gives
a line with its last words. What is not done after --seconds is left out. Another --device, such as
sim:four-2080ti, tries the script without a GPU; PyTorch then runs on the CPU.
"""
import argparse
import datetime
import gc
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

import models
from net_files import TRAINING, find_file


def run_rank(rank, name, how, gpus, batch, steps, device):
    """One process of PyTorch's: what a step takes alone, on rank 0, then on all ranks together."""
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    on_gpu = device == "cuda"
    if on_gpu:
        torch.cuda.set_device(rank)
    # The barrier that ranks wait at is on the host, so that waiting ranks keep their GPUs idle.
    dist.init_process_group("cuda:nccl,cpu:gloo" if on_gpu else "gloo", rank=rank, world_size=gpus,
                            timeout=datetime.timedelta(minutes=5))
    on_host = dist.new_group(backend="gloo")
    how_here = how if on_gpu else "cpu"

    def parallel(net):
        # Like our replicas: each has batch norms of its own.
        return DistributedDataParallel(net, device_ids=[rank] if on_gpu else None, broadcast_buffers=False,
                                       gradient_as_bucket_view=True)

    alone = models.run_in_torch(name, "train", how_here, batch, steps, "bf16") if rank == 0 else None
    gc.collect()
    if on_gpu:
        torch.cuda.empty_cache()
    dist.barrier(group=on_host)
    together = models.run_in_torch(name, "train", how_here, batch, steps, "bf16", parallel)
    if rank == 0:
        print(json.dumps({"alone": alone["ms"], "together": together["ms"]}), flush=True)
    dist.barrier(group=on_host)
    dist.destroy_process_group()


def run_torch_child(name, how, gpus, batch, steps, device):
    import torch.multiprocessing

    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ.setdefault("MASTER_PORT", "29513")
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")  # as ours: multicast is not set up on every machine
    torch.multiprocessing.spawn(run_rank, (name, how, gpus, batch, steps, device), gpus)


class Clock:
    """Runs programs until the time is over."""

    def __init__(self, seconds):
        self.end = time.monotonic() + seconds

    def run(self, words):
        """The last line that it printed, and what failed: empty if nothing. All its processes end with the time."""
        left = self.end - time.monotonic()
        if left < 5:
            return "", "no time left"
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
            child = subprocess.Popen([str(word) for word in words], stdout=out, stderr=errors, start_new_session=True)
            try:
                code = child.wait(left)
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
                return "", f"stopped after {left:.0f} s"
            out.seek(0)
            errors.seek(0)
            line = (out.read().strip().splitlines() or [""])[-1]
            if code == 0 and line:
                return line, ""
            return line, f"exit code {code}: {(errors.read().strip().splitlines() or ['no message'])[-1][:300]}"


def run_headroom(clock, options, path, plan, replicas, batch):
    words = [options.headroom, "run", "--model", path, "--batch", batch * replicas, "--steps", options.steps, "--plan",
             plan, "--optimizer", "sgd", "--precision", "bf16", "--device", options.device, "--json"]
    if replicas > 1:
        words += ["--replicas", replicas]
    line, error = clock.run(words)
    result = json.loads(line) if line.startswith("{") else {}
    if error:
        return None, result.get("error", error)[:300]
    return 1e3 * result["seconds_per_step"], ""


def main():
    if sys.argv[1:2] == ["--child"]:
        name, how, gpus, batch, steps, device = sys.argv[2:]
        run_torch_child(name, how, int(gpus), int(batch), int(steps), device)
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("headroom")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--nets", nargs="+", choices=list(TRAINING), default=["gpt2", "resnet50"])
    parser.add_argument("--plans", nargs="*", default=["parallel", "packed"])
    parser.add_argument("--programs", nargs="*", choices=["eager", "compile"], default=["eager"])
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--batch", type=int, help="of one GPU; that of models.py unless given")
    parser.add_argument("--seconds", type=float, default=220)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--json", type=argparse.FileType("w"))
    options = parser.parse_args()
    clock = Clock(options.seconds)
    print(f"{'net':10} {'program':18} {'GPUs':>4} {'batch':>5} {'alone':>9} {'together':>9} {'efficiency':>10}", flush=True)

    def report(name, program, batch, alone, together, note):
        if options.json:
            print(json.dumps({"net": name, "program": program, "gpus": options.gpus, "batch_of_a_gpu": batch,
                              "alone_ms": alone, "together_ms": together, "note": note}), file=options.json, flush=True)
        ms = "".join(f" {value:9.3f}" if value else " " * 10 for value in (alone, together))
        efficiency = f" {alone / together:10.3f}" if alone and together else " " * 11
        print(f"{name:10} {program:18} {options.gpus:4} {batch:5}{ms}{efficiency} {note}", flush=True)

    with tempfile.TemporaryDirectory() as folder:
        unpacked = pathlib.Path(folder)
        # The first plan and program of each net come before the second ones, for which there may be no time.
        for turn in range(max(len(options.plans), len(options.programs))):
            for name in options.nets:
                batch = options.batch or TRAINING[name]
                for plan in options.plans[turn:turn + 1]:
                    path = find_file(options.folder, name, "train", unpacked)
                    alone, why = run_headroom(clock, options, path, plan, 1, batch)
                    together, why_not = run_headroom(clock, options, path, plan, options.gpus, batch)
                    report(name, f"headroom {plan}", batch, alone, together, why or why_not)
                for how in options.programs[turn:turn + 1]:
                    line, error = clock.run([sys.executable, __file__, "--child", name, how, options.gpus, batch,
                                             options.steps, options.device])
                    times = {} if error else json.loads(line)
                    report(name, f"PyTorch {how}", batch, times.get("alone"), times.get("together"), error)


if __name__ == "__main__":
    main()
