"""Runs programs under `headroom run --limit` on a GPU: bench/check_verdicts.py HEADROOM [PROGRAM...]

Each of tests/guard/verdicts is an unmodified training or inference script with one cause of running out of memory,
written down in expected.csv before any run; the line that an answer should name ends in "# HERE". Prints what was
expected beside the verdict, and whether the verdict names a marked line; whether it tells the cause is for a reader to
judge. --jobs N runs several at once, each under a limit of its own; --keep FOLDER keeps there what each verdict was
told from (`headroom run --failure`), and --replay FOLDER tells those verdicts again without a GPU. --record keeps
recordings and snapshots beside it. --simulate FOLDER needs no GPU: simulate_verdict.py writes there what --keep would,
from fake tensors.
"""

import argparse
import concurrent.futures
import csv
import os
import re
import subprocess
import sys
import threading

FOLDER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "tests", "guard", "verdicts")
SIMULATE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "simulate_verdict.py")
one_rendezvous = threading.Lock()  # torchrun's port


def marked_lines(path):
    with open(path, encoding="utf-8") as file:
        return [f"{os.path.basename(path)}:{number}" for number, line in enumerate(file, 1) if "# HERE" in line]


def run(headroom, row, options):
    folder = options.simulate or options.replay or options.keep
    kept = os.path.join(folder, row["file"].replace("/", "-")) if folder else ""
    ended = simulate(headroom, row, kept + ".json", options) if options.simulate else "no facts"
    if options.simulate or options.replay:
        if not os.path.exists(kept + ".json"):
            return row, [ended]
        words = [headroom, "run", "--failure", kept + ".json"]
        result = subprocess.run(words, capture_output=True, text=True, timeout=200)
        return row, (result.stdout + result.stderr).rstrip().splitlines()
    command = row["command"].split()
    keep = ["--failure", kept + ".json"] if kept else []
    keep += ["--record", kept] if options.record else []
    words = [headroom, "run", *keep, "--limit", row["limit"], "--", *command]
    lock = one_rendezvous if command[0] == "torchrun" else threading.Lock()
    with lock:
        try:
            result = subprocess.run(words, cwd=options.scripts, capture_output=True, text=True, timeout=options.seconds)
        except subprocess.TimeoutExpired:
            return row, [f"no end in {options.seconds} s"]
    return row, verdict_of(result.stderr.rstrip().splitlines())


def simulate(headroom, row, facts, options):
    """Writes the facts of a simulated run; returns the last line of one that has none."""
    if os.path.exists(facts):
        os.remove(facts)
    words = [sys.executable, SIMULATE, headroom, facts, row["limit"], *row["command"].split()]
    places = {"cwd": options.scripts, "env": {**os.environ, "CUDA_VISIBLE_DEVICES": ""}}
    try:
        result = subprocess.run(words, **places, capture_output=True, text=True, timeout=options.seconds)
    except subprocess.TimeoutExpired:
        return f"no end in {options.seconds} s"
    return (result.stdout + result.stderr).rstrip().rpartition("\n")[2]


def verdict_of(lines):
    """Returns what the command added below the program's own last error."""
    def ends_program(line):
        return ("Error" in line and not line.startswith((" ", "next: "))) or line.startswith("====")

    ends = [i for i, line in enumerate(lines) if ends_program(line)]
    return lines[max(ends[-1] + 1 if ends else 0, len(lines) - 10) :]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("headroom")
    parser.add_argument("programs", nargs="*")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--keep", metavar="FOLDER")
    parser.add_argument("--replay", metavar="FOLDER")
    parser.add_argument("--simulate", metavar="FOLDER", help="keep there what simulated runs give")
    parser.add_argument("--seconds", type=int, default=200, help="that a program may take")
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--scripts", metavar="FOLDER", default=FOLDER, help="others, with their expected.csv")
    options = parser.parse_intermixed_args()
    headroom = os.path.abspath(options.headroom)
    with open(os.path.join(options.scripts, "expected.csv"), encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if not options.programs or row["file"] in options.programs]
    if options.record and not options.keep:
        parser.error("--record needs --keep FOLDER")
    for name in ("keep", "simulate"):
        folder = getattr(options, name)
        if folder:
            setattr(options, name, os.path.abspath(folder))
            os.makedirs(folder, exist_ok=True)
    named = 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for row, verdict in pool.map(lambda row: run(headroom, row, options), rows):
            text = "\n".join(verdict)
            marked = marked_lines(os.path.join(options.scripts, row["file"]))
            has_line = any(re.search(re.escape(line) + r"\b", text) for line in marked)
            named += has_line
            print(f"\n{row['file']}, limit {row['limit']}\n  expected: {row['cause']}\n  line named: {has_line}")
            print("  " + text.replace("\n", "\n  "), flush=True)
    print(f"\n{named} of {len(rows)} verdicts name a marked line")


if __name__ == "__main__":
    sys.exit(main())
