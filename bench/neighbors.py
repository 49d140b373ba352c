#!/usr/bin/env python3
"""Programs that share one GPU: does ours keep to its limit, and do both go on?

usage: neighbors.py [--steps N] [--limit MIB] [--device NAME] [--json FILE] [--seconds N] [--beside KIND,...]
                     HEADROOM [STRATEGY...]

HEADROOM is the command; a release build may be stripped. Each strategy (all that HEADROOM has) trains N steps
(10000) of LeNet under a limit on the process that is little above what the net takes (800 MiB), and two runs
have the packed plan: hard-limit, and --memory at 100 MiB less, which the net exceeds without it. Each of them
runs three times:

  alone   nothing else uses the card
  kind    a neighbor takes and frees blocks of random sizes, up to all that the limit leaves of the card;
          none of its requests may fail, as none fails beside a plain process that holds the limit
  greedy  a neighbor takes and frees at random up to the whole card; ours may run out of memory, and says so

--beside names those of the three to run, separated by commas; all unless given. Throughout, the driver's own
figures are sampled (NVML): what our process holds and, alone, what is in use of the card. The first must be at
most the limit; the second may be more by what the driver keeps for itself, as seen beside a plain process that
holds the limit (first row). With a simulated GPU as --device each runs alone, and the figure is the simulated
driver's. The whole takes at most --seconds (480): runs for which no time is left count as failed.
Exit codes: 0 all promises kept, 5 one broken, 2 bad arguments, 1 anything else.
"""

import argparse
import ctypes
import json
import os
import random
import subprocess
import sys
import threading
import time

MIB = 1 << 20
PAGE = 2 * MIB  # cuMemAlloc takes such pages
# Allowance beside the limit and the neighbor: page tables of the driver, and partly used pages.
MARGIN = 32 * MIB
MEMORY_BELOW = 100 * MIB
BATCH = 4096
SECONDS_A_RUN = 120
OUT_OF_MEMORY = 3  # HEADROOM's exit code
PLAIN = "plain process"
COLUMNS = (
    ("run", 17),
    ("neighbor", 9),
    ("exit", 4),
    ("s", 6),
    ("ms/step", 8),
    ("limit", 6),
    ("process", 8),
    ("card", 8),
    ("samples", 7),
    ("requests", 8),
    ("failed", 6),
    ("held", 8),
    ("verdict", 7),
)


class Card:
    """The driver's management library."""

    class Memory(ctypes.Structure):
        _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]

    class Process(ctypes.Structure):
        _fields_ = [
            ("pid", ctypes.c_uint),
            ("used", ctypes.c_ulonglong),
            ("gpu_instance", ctypes.c_uint),
            ("compute_instance", ctypes.c_uint),
        ]

    def __init__(self):
        self.library = ctypes.CDLL("libnvidia-ml.so.1")
        self._check(self.library.nvmlInit_v2())
        self.handle = ctypes.c_void_p()
        self._check(self.library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(self.handle)))

    @staticmethod
    def _check(status):
        if status != 0:
            raise RuntimeError(f"NVML: status {status}")

    def used(self):
        """Bytes of the card in use, by anybody."""
        memory = self.Memory()
        self._check(self.library.nvmlDeviceGetMemoryInfo(self.handle, ctypes.byref(memory)))
        return memory.used

    def held_by(self, pid, known):
        """Bytes of the process. In a container the driver may know it by another number: then those of the
        only process that is not `known`. None where the driver does not say."""
        rows = self._processes()
        own = [row for row in rows if row[0] == pid] or [row for row in rows if row[0] not in known]
        return own[0][1] if len(own) == 1 and own[0][1] != 2**64 - 1 else None

    def pids(self):
        return {row[0] for row in self._processes()}

    def _processes(self):
        rows = (self.Process * 64)()
        count = ctypes.c_uint(len(rows))
        self._check(
            self.library.nvmlDeviceGetComputeRunningProcesses_v3(self.handle, ctypes.byref(count), rows)
        )
        return [(row.pid, row.used) for row in rows[: count.value]]


class Cuda:
    """A context on the first GPU, in the present process."""

    def __init__(self):
        self.library = ctypes.CDLL("libcuda.so.1")
        context, device = ctypes.c_void_p(), ctypes.c_int()
        for status in (
            self.library.cuInit(0),
            self.library.cuDeviceGet(ctypes.byref(device), 0),
            self.library.cuDevicePrimaryCtxRetain(ctypes.byref(context), device),
            self.library.cuCtxSetCurrent(context),
        ):
            if status != 0:
                raise RuntimeError(f"CUDA: status {status}")

    def free_bytes(self):
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        if self.library.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) != 0:
            raise RuntimeError("cuMemGetInfo failed")
        return free.value

    def allocate(self, size):
        """The address; None if there is no room."""
        pointer = ctypes.c_ulonglong()
        status = self.library.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size))
        return pointer.value if status == 0 else None

    def free(self, pointer):
        self.library.cuMemFree_v2(ctypes.c_ulonglong(pointer))


def neighbor(leaves_bytes):
    """A process of its own: takes and frees until its input ends, leaving so much free; prints what it did."""
    cuda = Cuda()
    most_bytes = (cuda.free_bytes() - leaves_bytes) // PAGE * PAGE
    print("ready", flush=True)
    sys.stdin.readline()
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    choose = random.Random(1)
    live, held, most, requests, failed = [], 0, 0, 0, 0
    while not ended.is_set():
        size = min(int(2 ** choose.uniform(0, 13)) * PAGE, most_bytes - held)
        if live and (size == 0 or choose.random() < 0.45):
            pointer, freed = live.pop(choose.randrange(len(live)))
            cuda.free(pointer)
            held -= freed
        else:
            requests += 1
            pointer = cuda.allocate(size)
            if pointer is None:
                failed += 1
            else:
                live.append((pointer, size))
                held += size
                most = max(most, held)
        time.sleep(0.0005)  # both need the driver's lock
    print(json.dumps({"requests": requests, "failed": failed, "most": most, "bound": most_bytes}), flush=True)


def plain(limit_bytes):
    """A process that holds the limit, with its context, for some seconds."""
    card = Card()
    known = card.pids()
    cuda = Cuda()
    held = card.held_by(os.getpid(), known)
    while held is not None and held + PAGE <= limit_bytes and cuda.allocate(PAGE) is not None:
        held = card.held_by(os.getpid(), known)
    time.sleep(3)


class Neighbor:
    """Starts the neighbor, so that its context is there before ours begins."""

    def __init__(self, leaves_bytes):
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--neighbor", str(leaves_bytes)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        if self.process.stdout.readline() != "ready\n":
            raise RuntimeError("the neighbor did not start")

    def go(self):
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def end(self):
        self.process.stdin.close()
        did = json.loads(self.process.stdout.readline())
        self.process.wait()
        return did


def last_json(text):
    for line in reversed(text.splitlines()):
        if line.startswith("{"):
            return json.loads(line)
    return {}


def run_beside(command, card, kind, limit_bytes, seconds):
    """Runs the command to its end, alone or beside a neighbor; returns what was seen."""
    seen = {"process": None, "card": None, "samples": 0, "did": None}
    known, before = card.pids(), card.used()
    other = None
    if kind != "alone":
        other = Neighbor(limit_bytes + MARGIN if kind == "kind" else 0)
        known |= card.pids()
    began = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    output = []
    reader = threading.Thread(target=lambda: output.append(process.communicate()))
    reader.start()
    appeared = None
    going = False
    while process.poll() is None:
        now = time.monotonic()
        if now - began > seconds:
            process.kill()
        held = card.held_by(process.pid, known)
        if held is not None:
            appeared = appeared or now
            seen["process"] = max(seen["process"] or 0, held)
        if other is None:
            seen["card"] = max(seen["card"] or 0, card.used() - before)
        # A greedy process may allocate memory that ours does not use yet, so it begins once ours
        # has started.
        elif not going and (kind == "kind" or (appeared and now - appeared > 1.5)):
            other.go()
            going = True
        seen["samples"] += 1
        time.sleep(0.001)
    reader.join()
    seen["seconds"] = time.monotonic() - began
    seen["exit"] = process.returncode
    seen["output"], seen["errors"] = output[0]
    if other is not None:
        if not going:
            other.go()
        seen["did"] = other.end()
    return seen


def run_simulated(command, seconds):
    began = time.monotonic()
    done = subprocess.run(["timeout", str(seconds), *command], capture_output=True, text=True)
    return {
        "process": last_json(done.stdout).get("peak_process_bytes"),
        "card": last_json(done.stdout).get("peak_device_bytes"),
        "samples": 0,
        "did": None,
        "seconds": time.monotonic() - began,
        "exit": done.returncode,
        "output": done.stdout,
        "errors": done.stderr,
    }


def faults_of(seen, kind, limit_bytes, steps, own_of_driver):
    """The promises that the run broke, in words."""
    faults = []
    allowed = (0, OUT_OF_MEMORY) if kind == "greedy" else (0,)
    if seen["exit"] not in allowed:
        faults.append(f"exit code {seen['exit']}")
    if seen["exit"] == 0 and steps is not None and last_json(seen["output"]).get("steps") != steps:
        faults.append("not all steps")
    if seen["process"] is None:
        faults.append("the driver does not say what the process holds")
    for name, allowed in (("process", limit_bytes), ("card", limit_bytes + own_of_driver)):
        if (seen[name] or 0) > allowed:
            faults.append(f"{name} above the limit by {(seen[name] - limit_bytes) / MIB:.1f} MiB")
    if kind == "kind" and seen["did"]["failed"]:
        faults.append(f"{seen['did']['failed']} requests of the neighbor failed")
    return faults


def in_mib(bytes_or_none):
    return "-" if bytes_or_none is None else f"{bytes_or_none / MIB:.0f}"


def print_row(values):
    print("  ".join(f"{str(value):>{width}}" for value, (_, width) in zip(values, COLUMNS)), flush=True)


def main():
    if len(sys.argv) == 3 and sys.argv[1] in ("--neighbor", "--plain"):
        return (neighbor if sys.argv[1] == "--neighbor" else plain)(int(sys.argv[2]))
    if not sys.argv[1:] or sys.argv[1] in ("-h", "--help"):
        print(__doc__.strip())
        return 0 if sys.argv[1:] else 2
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1][7:])
    parser.add_argument("--steps", type=int, default=10000)
    parser.add_argument("--limit", type=int, default=800)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--json")
    parser.add_argument("--seconds", type=float, default=480)
    kinds = ["alone", "kind", "greedy"]
    parser.add_argument("--beside", type=lambda text: text.split(","), default=kinds)
    parser.add_argument("headroom")
    parser.add_argument("strategy", nargs="*")
    options = parser.parse_args()
    if not set(options.beside) <= set(kinds):
        parser.error(f"--beside: {','.join(options.beside)} is no list of {', '.join(kinds)}")
    deadline = time.monotonic() + options.seconds
    limit = options.limit * MIB
    strategies = options.strategy or [
        row["name"]
        for row in json.loads(
            subprocess.run(
                [options.headroom, "strategies", "--json"], capture_output=True, text=True, check=True
            ).stdout
        )["strategies"]
    ]
    base = [options.headroom, "run", "--json", "--device", options.device, "--net", "lenet"]
    base += ["--batch", str(BATCH), "--steps", str(options.steps)]
    limited = ["--limit", f"{options.limit}MiB", "--limit-scope", "process"]
    runs = [(name, [*base, "--strategy", name, *limited], limit) for name in strategies]
    runs.append(("hard-limit packed", [*base, "--strategy", "hard-limit", "--plan", "packed", *limited], limit))
    memory = limit - MEMORY_BELOW
    runs.append(("--memory", [*base, "--memory", f"{memory // MIB}MiB"], memory))
    is_simulated = not options.device.startswith("cuda")
    card = None if is_simulated else Card()
    itself = [] if is_simulated else [(PLAIN, [sys.executable, __file__, "--plain", str(limit)], limit)]
    todo = [("alone", *run) for run in itself + runs]
    if not is_simulated:
        todo += [("kind", *run) for run in itself + runs] + [("greedy", *run) for run in runs]
    todo = [run for run in todo if run[0] in options.beside]
    if not todo:
        parser.error("--beside: with a simulated GPU each runs alone")
    own_of_driver = 0

    print_row([title for title, _ in COLUMNS])
    rows, broken = [], 0
    for kind, name, command, run_limit in todo:
        left = deadline - time.monotonic() - 5
        if left < 10:
            print(f"{name}, {kind}: no time is left")
            broken += 1
            continue
        seconds = min(SECONDS_A_RUN, left)
        if is_simulated:
            seen = run_simulated(command, seconds)
        else:
            seen = run_beside(command, card, kind, run_limit, seconds)
        if name == PLAIN and kind == "alone" and seen["process"] is not None:
            own_of_driver = max(0, seen["card"] - seen["process"])
        faults = faults_of(seen, kind, run_limit, None if name == PLAIN else options.steps, own_of_driver)
        did = seen["did"] or {}
        result = last_json(seen["output"])
        print_row(
            [
                name,
                kind,
                seen["exit"],
                f"{seen['seconds']:.1f}",
                f"{1e3 * result['seconds_per_step']:.3f}" if result else "-",
                in_mib(run_limit),
                in_mib(seen["process"]),
                in_mib(seen["card"]),
                seen["samples"],
                did.get("requests", "-"),
                did.get("failed", "-"),
                in_mib(did.get("most")),
                "BROKEN" if faults else "kept",
            ]
        )
        if faults:
            broken += 1
            why = result.get("error") or seen["errors"].strip()[-300:]
            print(f"    {'; '.join(faults)}{': ' if why else ''}{why}", flush=True)
        rows.append(
            {
                "run": name,
                "neighbor": kind,
                "exit": seen["exit"],
                "seconds": round(seen["seconds"], 2),
                "seconds_per_step": result.get("seconds_per_step"),
                "limit_bytes": run_limit,
                "process_bytes": seen["process"],
                "card_bytes": seen["card"],
                "own_figure_bytes": result.get("peak_process_bytes"),
                "samples": seen["samples"],
                "did": seen["did"],
                "faults": faults,
            }
        )
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"device": options.device, "steps": options.steps, "runs": rows}, file, indent=1)
    print(f"{broken} of {len(todo)} runs broke a promise; sizes in MiB")
    return 5 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
