"""Runs programs on a GPU with exactly the memory that Headroom calls enough.

On any machine:         bench/check_fits.py --predict FIGURES TABLE... [--only PROGRAM...]
On one with the GPU:    bench/check_fits.py --run FIGURES TABLE... [--jobs N] [--times N] [--history FOLDER]

A TABLE is a CSV file with the columns program (as train.py:make_step, relative to the table) and batch, and, where the
answers of `fit` and `solve` are to be checked, memory_mib. --predict adds to FIGURES, one line of JSON for each row,
what is called enough: what PyTorch's allocator reserves by `headroom predict`, the least with which the program runs by
`fit --least-memory`, the largest batch of `fit --memory`, and the changes of `solve --memory`. `headroom` is taken from
PATH. --run needs no Headroom but its Python package in this tree: each program runs three steps in a process of its own
under PyTorch's own limit, at the first figure, at the least, and at 98 % of the least; the largest batch and the next,
and the changed program, under the limit that the budget leaves. A program that dies at what was called enough is a
false fit; one that runs with 2 % less could have been told less. Rows without figures run once without a limit.
--history keeps PyTorch's record of each run's allocations. Prints a table in Markdown, and the counts.
"""

import argparse
import concurrent.futures
import contextlib
import csv
import functools
import importlib.util
import json
import os
import pickle
import subprocess
import sys
import tempfile
import threading
import types

MIB = 2**20
PAGE = 2 * MIB  # in which the driver gives memory
UNKNOWN, BESIDE = 16 << 30, 1 << 30  # the allocator's bytes without a limit, and what a process takes beside them
STEPS = 3
# check_compile.py's nets are programs of a table as well, without torch.compile.
os.environ.setdefault("CHECK_COMPILE_EAGER", "1")


# In a process of its own, on the GPU.


def keep_history(path):
    """Writes what happened in the allocator: rows of (action, address, bytes, stream)."""
    import torch

    codes = {"alloc": 0, "free_completed": 1, "segment_alloc": 2, "segment_free": 3, "oom": 4}
    entries = torch.cuda.memory._snapshot()["device_traces"][0]
    rows = [
        (codes[entry["action"]], entry.get("addr", entry.get("device_free", 0)), entry["size"], entry["stream"])
        for entry in entries
        if entry["action"] in codes
    ]
    with open(path, "wb") as file:
        pickle.dump(rows, file)


def changed(step, changes):
    """A step with the changes that `solve` proposes, as a trace makes them."""
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "python"))
    from headroom.torch.changes import ChangedProgram, Changes

    recorder = types.SimpleNamespace(phase="forward", modules=[None])
    program = ChangedProgram(types.SimpleNamespace(recorder=recorder), contextlib.ExitStack())
    program.change(Changes.of({key: value for key, value in changes.items() if key != "expandable_segments"}))
    return functools.partial(program.run_step, step), program


def run_limited(program, batch, limit, changes, history):
    """Some steps of a program whose allocator may reserve `limit` bytes; 0: any. Prints its peaks as JSON."""
    import torch

    if limit:
        torch.cuda.set_per_process_memory_fraction((limit + 0.5) / torch.cuda.mem_get_info()[1])
    if history:
        torch.cuda.memory._record_memory_history(context=None, max_entries=10**7)
    path, _, name = program.partition(":")
    sys.path.insert(0, os.path.dirname(path))
    spec = importlib.util.spec_from_file_location("program", path)
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        if changes:
            wrapped, program = changed(lambda: step(), changes)
        step = getattr(module, name)(batch)
        for _ in range(STEPS):
            wrapped() if changes else step()
        torch.cuda.synchronize()
    finally:
        if history:
            keep_history(history)
    stats = torch.cuda.memory_stats()
    names = {"requested": "requested_bytes.all.peak", "reserved": "reserved_bytes.all.peak"}
    print(json.dumps({**{key: stats[name] for key, name in names.items()}, "retries": stats["num_alloc_retries"]}))


class Card:
    """The memory that runs at the same time share."""

    def __init__(self, free):
        self.free, self.change = free, threading.Condition()

    @contextlib.contextmanager
    def share(self, size):
        with self.change:
            self.change.wait_for(lambda: self.free >= size)
            self.free -= size
        try:
            yield
        finally:
            with self.change:
                self.free += size
                self.change.notify_all()


class Run:
    """One run: of a row's program with a batch, under a limit of bytes."""

    def __init__(self, kind, batch, limit, changes=None):
        self.kind, self.batch, self.limit, self.changes = kind, batch, limit, changes or {}
        self.peaks, self.error = None, ""

    def do(self, program, history, card):
        """Fills in the peaks, or the last line of what the program said when it died."""
        with card.share((self.limit or UNKNOWN) + BESIDE):
            return self._do(program, history)

    def _do(self, program, history):
        words = ["--one", program, str(self.batch), str(self.limit), json.dumps(self.changes), history]
        environment = dict(os.environ)
        if self.changes.get("expandable_segments"):
            environment["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
        command = [sys.executable, os.path.abspath(__file__), *words]
        result = subprocess.run(command, capture_output=True, text=True, env=environment)
        lines = result.stdout.strip().splitlines()
        if result.returncode == 0 and lines:
            self.peaks = json.loads(lines[-1])
        else:
            self.error = ([line for line in result.stderr.strip().splitlines() if "Error" in line] or ["no error"])[-1]
        return self

    def __str__(self):
        batch = f"batch {self.batch}: " if self.kind in ("largest", "next") else ""
        if self.error:
            return batch + (f"{self.limit / MIB:.0f} dies" if "out of memory" in self.error else self.error[:100])
        peaks = f"{self.peaks['requested'] / MIB:.2f} / {self.peaks['reserved'] / MIB:.0f}"
        return batch + (f"{self.limit / MIB:.0f} runs" if self.limit else peaks)


# Predictions.


def ask(words, seconds=900):
    try:
        result = subprocess.run(["headroom", *words, "--json"], capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return {"error": f"no answer in {seconds} s"}
    try:
        return json.loads(result.stdout)
    except ValueError:
        return {"error": (result.stderr.strip().splitlines() or ["no answer"])[-1]}


def predict(program, batch, memory_mib, device):
    """The figures of one row, in bytes of the allocator; or its error."""
    with tempfile.TemporaryDirectory() as folder:
        trace = os.path.join(folder, "run.trace.gz")
        made = ask(["trace", program, "--batch", batch, "--device", device, "-o", trace])
        if "error" in made:
            return made
        predicted = ask(["predict", trace, "--device", device])
        least = ask(["fit", trace, "--device", device, "--least-memory"])
    beside = predicted["total_bytes"] - predicted["peak_reserved_bytes"]
    figures = {
        "requested": predicted["peak_requested_bytes"],
        "enough": predicted.get("most_reserved_bytes", predicted["peak_reserved_bytes"]),
        "least": (least["device_bytes"] - beside) // PAGE * PAGE,
    }
    if not memory_mib:
        return figures
    figures["limit"] = (int(memory_mib) * MIB - beside) // PAGE * PAGE
    budget = ["--device", device, "--memory", f"{memory_mib}MiB"]
    figures["largest"] = ask(["fit", program, *budget]).get("batch", 0)
    solved = ask(["solve", program, "--batch", batch, *budget])
    if solved.get("keeps"):
        names = {"passes": "parts", "offload": "save_on_cpu", "fused": "fused_optimizer"}
        keys = ("checkpoints", "autocast", "model", "loss_parts", "head", "expandable_segments")
        figures["changes"] = {key: solved.get(names.get(key, key)) for key in (*names, *keys)}
        figures["changes"]["uncached"] = not solved["use_cache"]
    return figures


def key_of(row):
    return f"{row['program']} {row['batch']}"


def read_figures(path):
    if not os.path.exists(path):
        return {}
    with open(path, encoding="utf-8") as file:
        return dict(json.loads(line) for line in file)


def write_predictions(path, rows, device):
    for folder, row in rows:
        if key_of(row) in read_figures(path):
            continue
        figures = predict(os.path.join(folder, row["program"]), row["batch"], row.get("memory_mib"), device)
        print(key_of(row), figures, flush=True)
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps([key_of(row), figures]) + "\n")


# Runs.


def runs_of(row, figures, times):
    """The runs of a row, in order."""
    batch = int(row["batch"])
    if "enough" not in figures:
        return [Run("free", batch, 0)]
    enough, least = figures["enough"], figures["least"]
    runs = [Run("enough", batch, enough)]
    for _ in range(times):
        runs += [Run("least", batch, least), Run("less", batch, int(0.98 * least))]
    if figures.get("largest"):
        runs.append(Run("largest", figures["largest"], figures["limit"]))
        runs.append(Run("next", figures["largest"] + 1, figures["limit"]))
    if figures.get("changes"):
        changes = figures["changes"]
        parts = changes["passes"]
        runs.append(Run("changed", batch // parts, figures["limit"], changes))
    return runs


def check(rows, known, options):
    columns = ["free", "enough", "least", "less", "largest", "next", "changed"]
    counts = {kind: [0, 0] for kind in columns}  # those that ran, and all
    works = []
    for folder, row in rows:
        for number, run in enumerate(runs_of(row, known.get(key_of(row), {}), options.times)):
            history = ""
            if options.history:
                name = key_of(row).replace(":", "-").replace(" ", "-").replace("/", "-")
                history = os.path.join(options.history, f"{name}-{number}-{run.limit // MIB}.pickle")
            works.append((row, run, os.path.join(folder, row["program"]), history))
    card = Card(options.card_gib << 30)
    print(f"| program | batch | {' | '.join(columns)} |\n{'| --- ' * (2 + len(columns))}|")
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        waiting = [(row, pool.submit(run.do, program, history, card)) for row, run, program, history in works]
        for folder, row in rows:
            done = [future.result() for other, future in waiting if other is row]
            cells = ["; ".join(str(run) for run in done if run.kind == kind) for kind in columns]
            print(f"| {row['program']} | {row['batch']} | {' | '.join(cells)} |", flush=True)
            for run in done:
                counts[run.kind][0] += not run.error
                counts[run.kind][1] += 1
    for kind, (ran, all_) in counts.items():
        if all_:
            print(f"{kind}: {ran} of {all_} ran, {all_ - ran} died")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("tables", nargs="+")
    parser.add_argument("--only", nargs="+", default=[], help="rows whose program contains one of these")
    parser.add_argument("--predict", metavar="FIGURES", help="add what is called enough to that file; run nothing")
    parser.add_argument("--run", metavar="FIGURES", help="run the rows with what that file calls enough")
    parser.add_argument("--device", default="h200")
    parser.add_argument("--jobs", type=int, default=1, help="runs at once; each has a limit of its own")
    parser.add_argument("--card-gib", type=int, default=130, help="memory that runs at the same time may take")
    parser.add_argument("--times", type=int, default=1, help="how often to run at the least memory, and with less")
    parser.add_argument("--history", metavar="FOLDER", help="keep what each run's allocator did there")
    options = parser.parse_args()
    rows = []
    for table in options.tables:
        with open(table, encoding="utf-8") as file:
            rows += [(os.path.dirname(os.path.abspath(table)), row) for row in csv.DictReader(file)]
    rows = [(f, row) for f, row in rows if not options.only or any(name in row["program"] for name in options.only)]
    if options.predict:
        write_predictions(options.predict, rows, options.device)
    else:
        check(rows, read_figures(options.run or ""), options)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        run_limited(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), json.loads(sys.argv[5]), sys.argv[6])
    else:
        main()
