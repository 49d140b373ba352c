#!/usr/bin/env python3
"""Programs that share one GPU: does ours keep to its limit, and do both go on?

usage: neighbours.py HEADROOM [STEPS]

HEADROOM is the command. For each strategy it trains STEPS steps (10000) under a limit on the process
(--limit 2GiB --limit-scope process), and one run under --memory 2GiB, twice: alone on the card, and
beside a neighbour that takes and frees blocks of random sizes all the time, up to what is left beside
the limit. The driver's own figure (NVML, memory in use of the card) is sampled throughout. Prints a line
for each run: the most that ours took, the limit, the neighbour's requests and how many failed.
Exit codes: 0 all kept to the limit and no request of the neighbour failed, 5 otherwise, 1 anything else.
"""

import ctypes
import json
import random
import subprocess
import sys
import threading
import time

MIB = 1 << 20
LIMIT = 2048 * MIB
# Beside the limit and the neighbour: its context, and what the driver needs for itself.
MARGIN = 2048 * MIB
SECONDS = 60  # a run that takes longer is ended and fails
STRATEGIES = (
    "grab-all",
    "allow-growth",
    "hard-limit",
    "two-ended",
    "caching",
    "pool",
    "arena",
    "mapped",
    "stream-ordered",
    "direct",
)


class Card:
    """The driver's management library."""

    class Memory(ctypes.Structure):
        _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]

    def __init__(self):
        self.library = ctypes.CDLL("libnvidia-ml.so.1")
        self._check(self.library.nvmlInit_v2())
        self.handle = ctypes.c_void_p()
        self._check(self.library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(self.handle)))

    @staticmethod
    def _check(status):
        if status != 0:
            raise RuntimeError(f"NVML: status {status}")

    def memory(self):
        memory = self.Memory()
        self._check(self.library.nvmlDeviceGetMemoryInfo(self.handle, ctypes.byref(memory)))
        return memory


def neighbour(most_bytes, seed):
    """Runs in a process of its own: takes and frees until its input ends; prints what it had."""
    cuda = ctypes.CDLL("libcuda.so.1")
    context, device = ctypes.c_void_p(), ctypes.c_int()
    for status in (
        cuda.cuInit(0),
        cuda.cuDeviceGet(ctypes.byref(device), 0),
        cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device),
        cuda.cuCtxSetCurrent(context),
    ):
        assert status == 0, status
    print("ready", flush=True)
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    choose = random.Random(seed)
    live, held, most, requests, failed = [], 0, 0, 0, 0
    while not ended.is_set():
        size = int(MIB * 2 ** choose.uniform(0, 14))
        if held + size > most_bytes or (live and choose.random() < 0.45):
            if not live:
                continue
            pointer, freed = live.pop(choose.randrange(len(live)))
            cuda.cuMemFree_v2(pointer)
            held -= freed
            continue
        pointer = ctypes.c_ulonglong()
        requests += 1
        if cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size)) != 0:
            failed += 1
            time.sleep(0.001)
            continue
        live.append((pointer, size))
        held += size
        most = max(most, held)
    print(json.dumps({"requests": requests, "failed": failed, "most_mib": most // MIB}), flush=True)


def run_ours(command, card, before, beside):
    """Runs it to its end; returns its exit code, the most it took by the card's figure, and its output."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    most = 0
    output = []
    reader = threading.Thread(target=lambda: output.append(process.stdout.read()))
    reader.start()
    ends = time.monotonic() + SECONDS
    while process.poll() is None:
        if time.monotonic() > ends:
            process.kill()
        # Beside a neighbour the card's figure has both; only alone it is ours.
        most = max(most, card.memory().used - before)
        time.sleep(0.002)
    reader.join()
    return process.returncode, None if beside else most, output[0]


def main():
    if sys.argv[1] == "--neighbour":
        return neighbour(int(sys.argv[2]), int(sys.argv[3]))
    headroom, steps = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "10000"
    card = Card()
    wrong = 0
    total = card.memory().total
    base = [headroom, "run", "--device", "cuda", "--net", "lenet", "--batch", "256", "--steps", steps]
    runs = [
        (name, [*base, "--strategy", name, "--limit", "2GiB", "--limit-scope", "process"])
        for name in STRATEGIES
    ]
    runs.append(("--memory", [*base, "--memory", "2GiB"]))
    for beside in (False, True):
        for name, command in runs:
            before = card.memory().used
            other = None
            if beside:
                other = subprocess.Popen(
                    [sys.executable, __file__, "--neighbour", str(total - before - LIMIT - MARGIN), "1"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
                other.stdout.readline()
                time.sleep(0.3)
            began = time.monotonic()
            code, most, output = run_ours(command, card, before, beside)
            line = {
                "strategy": name,
                "neighbour": None,
                "exit": code,
                "seconds": round(time.monotonic() - began, 1),
                "limit_mib": LIMIT // MIB,
                "most_mib": None if most is None else round(most / MIB, 1),
            }
            if other:
                other.stdin.close()
                line["neighbour"] = json.loads(other.stdout.readline())
                other.wait()
                if line["neighbour"]["failed"]:
                    wrong += 1
            if code != 0 or (most is not None and most > LIMIT):
                wrong += 1
                line["output"] = output[-400:]
            print(json.dumps(line), flush=True)
            time.sleep(0.2)
    print(f"{wrong} of {2 * len(runs)} runs broke a promise")
    return 5 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
