#!/usr/bin/env python3
"""Training of nets from ONNX files within budgets of memory, in turns in one run on one GPU.

usage: budgets.py HEADROOM FOLDER [--nets NET...] [--percent P...] [--split-batch never cheaper]
                  [--compress-norms no yes] [--steps N] [--json FILE] [-- OPTION...]

FOLDER has PyTorch's exports as for models.py. Each net is trained without a budget, with what the process took then
as 100 %, and with `--memory` at each of the percents, with the whole batch (never) and in parts where that is cheaper,
and where norms may be compressed ("+ norms") or not.
OPTION goes to every `headroom run`. Prints, for each run, MiB of the budget and of the process as the driver counts
it, ms a step, how much more that is than without a budget, and the ms that were planned; a budget that cannot be kept
names the least. The checksum of the weights says whether they have the same bits.
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile

import net_files

# Percents of the process without a budget.
BUDGETS = {"resnet50": [56, 33, 25], "gpt2": [60, 35], "unet": [30]}
MIB = 2**20


def train(options, words):
    command = [
        options.headroom,
        "run",
        *words,
        "--steps",
        str(options.steps),
        "--device",
        "cuda",
        "--precision",
        "bf16",
    ]
    command += ["--optimizer", "sgd", "--json", *options.rest]
    done = subprocess.run(command, capture_output=True, text=True)
    try:
        run = json.loads(done.stdout)
    except json.JSONDecodeError:
        run = {}
    if done.returncode and not run.get("error"):
        run["error"] = (done.stderr.strip().splitlines() or ["no output"])[-1]
    return run


def main():
    words = sys.argv[1:]
    rest = words[words.index("--") + 1 :] if "--" in words else []
    words = words[: words.index("--")] if "--" in words else words
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("headroom")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--nets", nargs="+", choices=list(BUDGETS), default=list(BUDGETS))
    parser.add_argument("--percent", nargs="+", type=float)
    parser.add_argument("--split-batch", nargs="+", choices=["never", "cheaper"], default=["never", "cheaper"])
    parser.add_argument("--compress-norms", nargs="+", choices=["no", "yes"], default=["no"])
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--json", type=argparse.FileType("w"))
    options = parser.parse_args(words)
    options.rest = rest
    print(
        f"{'net':9} {'batch':>5} {'of peak':>7} {'parts':15} {'budget':>7} {'process':>8} {'ms':>8} {'more':>7} "
        f"{'planned':>8}  bits",
        flush=True,
    )
    with tempfile.TemporaryDirectory() as folder:
        unpacked = pathlib.Path(folder)
        for name in options.nets:
            batch = net_files.TRAINING[name]
            net = ["--model", str(net_files.find_file(options.folder, name, "train", unpacked)), "--batch", str(batch)]
            plain = train(options, net + ["--plan", "packed", "--strategy", "direct"])
            if plain["error"]:
                print(f"{name:9} {batch:5} {plain['error']}", flush=True)
                continue

            def report(percent, way, run):
                if options.json:
                    print(
                        json.dumps({"net": name, "percent": percent, "way": way} | run), file=options.json, flush=True
                    )
                head = f"{name:9} {batch:5} {percent:5.0f} % {way:15} {run.get('memory_mib', ''):>7}"
                if run["error"]:
                    least = re.search(r"--memory (\S+)", run["error"])
                    print(
                        f"{head} cannot{'; the least is ' + least[1] if least else ': ' + run['error'][:200]}",
                        flush=True,
                    )
                    return
                ms, before = 1e3 * run["seconds_per_step"], 1e3 * plain["seconds_per_step"]
                planned = 1e3 * run.get("planned_seconds_per_step", 0)
                same = "same" if run["weights_checksum"] == plain["weights_checksum"] else "others"
                print(
                    f"{head} {run['peak_process_bytes'] / MIB:8.0f} {ms:8.2f} {100 * (ms / before - 1):+6.1f} % "
                    f"{planned:8.2f}  {same}",
                    flush=True,
                )

            report(100, "", plain)
            for percent in options.percent or BUDGETS[name]:
                memory = int(plain["peak_process_bytes"] * percent / 100) // MIB
                for split in options.split_batch:
                    for compressed in options.compress_norms:
                        budget = ["--memory", f"{memory}MiB", "--split-batch", split]
                        budget += ["--compress-norms"] if compressed == "yes" else []
                        way = split + (" + norms" if compressed == "yes" else "")
                        report(percent, way, train(options, net + budget) | {"memory_mib": memory})


main()
