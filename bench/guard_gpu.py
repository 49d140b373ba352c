"""The matrix of guard_gpu.sh: real programs under `headroom run --limit` on a GPU, while the driver's own figure of
what is used on the card is read every 10 ms.  guard_gpu.py HEADROOM GUARD_PROGRAMS TRAIN_MNIST [LIMIT_GIB...]"""

import ctypes
import importlib.util
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))


class Memory(ctypes.Structure):
    _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]


class Card:
    """The first card as the driver's management library sees it."""

    def __init__(self):
        self.nvml = ctypes.CDLL("libnvidia-ml.so.1")
        self.nvml.nvmlInit_v2()
        self.device = ctypes.c_void_p()
        self.nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(self.device))
        self.idle = self.used()

    def used(self):
        memory = Memory()
        self.nvml.nvmlDeviceGetMemoryInfo(self.device, ctypes.byref(memory))
        return memory.used


class Sampler(threading.Thread):
    def __init__(self, card):
        super().__init__(daemon=True)
        self.card, self.before, self.most, self.samples = card, card.used(), 0, 0
        self.ends = threading.Event()

    def run(self):
        while not self.ends.wait(0.01):
            self.most = max(self.most, self.card.used() - self.before)
            self.samples += 1

    def stop(self):
        self.ends.set()
        self.join()
        return self.most


def has(module):
    return importlib.util.find_spec(module) is not None


def programs(guard_programs, train_mnist):
    """(name, words, variables of the environment)"""
    python = [sys.executable, os.path.join(HERE, "guard_programs.py")]
    rows = []
    if has("torch"):
        rows += [
            ("PyTorch", [*python, "torch"], {}),
            ("PyTorch, expandable", [*python, "torch"], {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}),
            ("PyTorch, async", [*python, "torch"], {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}),
            ("PyTorch, CUDA graphs", [*python, "torch-graphs"], {}),
            ("PyTorch, workers", [*python, "torch-workers"], {}),
            ("PyTorch, compile", [*python, "torch-compile"], {}),
            ("PyTorch, DDP of 2", [*python, "torch-ddp"], {}),
        ]
    if has("jax"):
        rows += [
            ("JAX", [*python, "jax"], {}),
            ("JAX, growing", [*python, "jax"], {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}),
        ]
    rows += [(name, [*python, name.lower()], {}) for name in ("CuPy", "Numba") if has(name.lower())]
    if os.path.exists(guard_programs):
        rows += [
            ("static cudart", [guard_programs, "fill", "64"], {}),
            ("static cudart, small", [guard_programs, "fill", "3"], {}),
            ("virtual memory", [guard_programs, "virtual", "64"], {}),
            ("graph memory nodes", [guard_programs, "graphs", "128"], {}),
        ]
    if os.path.exists(train_mnist):
        for strategy in ("grab-all", "allow-growth", "mapped"):
            words = [train_mnist, "--device", "cuda", "--strategy", strategy, "--epochs", "1", "--steps", "50"]
            rows.append(("train_mnist, " + strategy, words, {}))
    return rows


def measure(card, headroom, words, variables, limit_gib):
    with tempfile.TemporaryDirectory() as folder:
        result = os.path.join(folder, "result.json")
        command = [headroom, "run", "--limit", f"{limit_gib}GiB", "--result", result, "--", *words]
        for _ in range(100):  # the driver gives the last program's memory back
            if card.used() <= card.idle + 2**24:
                break
            time.sleep(0.1)
        sampler = Sampler(card)
        sampler.start()
        try:
            run = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True, timeout=100)
            said = (run.stdout.strip().splitlines() or run.stderr.strip().splitlines() or [""])[-1]
        except subprocess.TimeoutExpired:
            said = "TIMEOUT"
        most = sampler.stop()
        nothing = {"peak_bytes": 0, "refusals": -1, "exit_code": -1}
        outcome = json.load(open(result)) if os.path.exists(result) else nothing
    return most, sampler.samples, outcome, said


def cost(headroom, guard_programs):
    if not os.path.exists(guard_programs):
        return
    print("\nmedian ns of a pair of calls")
    plain = subprocess.run([guard_programs, "cost"], capture_output=True, text=True).stdout.split()
    guarded = subprocess.run(
        [headroom, "run", "--limit", "4GiB", "--", guard_programs, "cost"], capture_output=True, text=True
    ).stdout.split()
    for i in range(0, min(len(plain), len(guarded)), 2):
        added = float(guarded[i + 1]) - float(plain[i + 1])
        print(f"{plain[i]:32} {plain[i + 1]:>8} guarded {guarded[i + 1]:>8} added a call {added / 2:8.0f}")


class InTurns:
    """A program that runs only while it is told to: its group of processes is stopped otherwise."""

    def __init__(self, words):
        self.process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )

    def is_ready(self):
        ready = self.process.stdout.readline() == "ready\n"
        self.stop()
        return ready

    def go_on(self):
        os.killpg(self.process.pid, signal.SIGCONT)

    def stop(self):
        os.killpg(self.process.pid, signal.SIGSTOP)

    def median_us(self, seconds, history=True, watched=True):
        self.go_on()
        if not watched:
            os.kill(self.process.pid, signal.SIGSTOP)  # the command alone
        self.process.stdin.write(f"{seconds} {history}\n")
        self.process.stdin.flush()
        median = float(self.process.stdout.readline())
        self.stop()
        return median

    def end(self):
        self.go_on()
        self.process.communicate()


def steady_program():
    return [sys.executable, os.path.join(HERE, "guard_programs.py"), "steady"]


def spread(ratios):
    """Median of ratios in percent above 1, the range that has the true median with 95 % (by order statistics), and the
    quartiles."""
    ordered = sorted(ratios)
    around = math.ceil(0.98 * math.sqrt(len(ordered)))
    least, most = ordered[max(len(ordered) // 2 - around, 0)], ordered[min(len(ordered) // 2 + around, len(ordered) - 1)]
    low, middle, high = (f"{100 * (value - 1):+.2f}" for value in statistics.quantiles(ordered, n=4))
    return f"{middle} % ({100 * (least - 1):+.2f} to {100 * (most - 1):+.2f}; quartiles {low} to {high})"


def share_of_a_step(headroom, rounds=250, seconds=0.1):
    """What the guard takes of a training's step: PyTorch's history, and the command that watches the process, each
    turned off in turns of one process. Such a step makes no call of the driver that the guard answers."""
    print(f"\na step with history and watcher beside one without, {rounds} turns of {seconds} s")
    with tempfile.TemporaryDirectory() as folder:
        for option in (["--limit", "8GiB"], ["--record", os.path.join(folder, "run.trace")]):
            program = InTurns([headroom, "run", *option, "--", *steady_program()])
            if not program.is_ready():
                print("the program did not start")
                return
            medians = {ways: [] for ways in ((True, True), (True, False), (False, True), (False, False))}
            for _ in range(rounds):
                for ways, values in medians.items():
                    values.append(program.median_us(seconds, *ways))
            program.end()
            alone = medians[False, False]
            print(f"{option[0]}, {statistics.median(alone):.0f} us")
            for (history, watched), values in medians.items():
                ratios = [value / other for value, other in zip(values, alone)]
                print(f"  history {history!s:5} watcher {watched!s:5} {spread(ratios)}")


def neighbor(headroom, times=10000, seconds=0.4):
    """Steps of a neighbor while a guarded program is refused, `times` times in all, and while it is stopped."""
    steady = InTurns(steady_program())
    programs = os.path.join(HERE, "guard_programs.py")
    words = [headroom, "run", "--limit", "2GiB", "--", sys.executable, programs, "refused", str(times)]
    refused = InTurns(words)
    if not steady.is_ready() or not refused.is_ready():
        print("a program did not start")
        return
    ratios, noise = [], []
    while refused.process.poll() is None and len(ratios) < 200:
        alone = steady.median_us(seconds)
        refused.go_on()
        beside = steady.median_us(seconds)
        if refused.process.poll() is None:
            refused.stop()
            ratios.append(beside / alone)
            noise.append(steady.median_us(seconds) / alone)
    said = refused.process.stdout.read().strip()
    steady.end()
    print(f"\na neighbor's step beside a program that runs into its limit, {len(ratios)} turns: {spread(ratios)}")
    print(f"beside the same, stopped: {spread(noise)}; {said}")


def main():
    headroom, guard_programs, train_mnist = sys.argv[1:4]
    limits = [float(text) for text in sys.argv[4:]] or [2, 4, 8]
    card = Card()
    over = 0
    titles = f"{'driver MiB':>10} {'account':>8} {'samples':>7} {'refused':>7} {'code':>4} ended in"
    print(f"{'program':24} {'GiB':>4} {titles}")
    for name, words, variables in programs(guard_programs, train_mnist):
        for limit in limits:
            most, samples, outcome, said = measure(card, headroom, words, variables, f"{limit:g}")
            is_over = most > limit * 2**30
            over += is_over
            print(
                f"{name:24} {limit:4g} {most / 2**20:10.0f} {outcome['peak_bytes'] / 2**20:8.0f} {samples:7}"
                f" {outcome['refusals']:7} {outcome['exit_code']:4} {'OVER ' if is_over else ''}{said[:70]}",
                flush=True,
            )
    cost(headroom, guard_programs)
    if has("torch"):
        share_of_a_step(headroom)
        neighbor(headroom)
    print(f"\n{over} above their limit")
    return over > 0


if __name__ == "__main__":
    sys.exit(main())
