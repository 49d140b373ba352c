"""Runs programs under `headroom run --limit` on a GPU: bench/check_verdicts.py HEADROOM [PROGRAM...]

Each of tests/guard/verdicts is an unmodified training or inference script with one cause of running out of memory,
written down in expected.csv before any run; the line that an answer should name ends in "# HERE". Prints what was
expected beside the verdict, and whether the verdict names a marked line; whether it tells the cause is for a reader to
judge. --jobs N runs several at once, each under a limit of its own; --keep FOLDER keeps there what each verdict was told
from (`headroom run --failure`), and --replay FOLDER tells those verdicts again without a GPU. --record keeps recordings
and snapshots beside it.
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
one_rendezvous = threading.Lock()  # torchrun's port


def marked_lines(path):
    with open(path, encoding="utf-8") as file:
        return [f"{os.path.basename(path)}:{number}" for number, line in enumerate(file, 1) if "# HERE" in line]


def run(headroom, row, options):
    folder = options.replay or options.keep
    kept = os.path.join(folder, row["file"].replace("/", "-")) if folder else ""
    if options.replay:
        if not os.path.exists(kept + ".json"):
            return row, ["no facts"]
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
            result = subprocess.run(words, cwd=options.scripts, capture_output=True, text=True, timeout=200)
        except subprocess.TimeoutExpired:
            return row, ["no end in 200 s"]
    return row, verdict_of(result.stderr.rstrip().splitlines())


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
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--scripts", metavar="FOLDER", default=FOLDER, help="others, with their expected.csv")
    options = parser.parse_intermixed_args()
    headroom = os.path.abspath(options.headroom)
    with open(os.path.join(options.scripts, "expected.csv"), encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if not options.programs or row["file"] in options.programs]
    if options.record and not options.keep:
        parser.error("--record needs --keep FOLDER")
    if options.keep:
        options.keep = os.path.abspath(options.keep)
        os.makedirs(options.keep, exist_ok=True)
    named = 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for row, verdict in pool.map(lambda row: run(headroom, row, options), rows):
            text = "\n".join(verdict)
            has_line = any(re.search(re.escape(line) + r"\b", text) for line in marked_lines(os.path.join(options.scripts, row["file"])))
            named += has_line
            print(f"\n{row['file']}, limit {row['limit']}\n  expected: {row['cause']}\n  line named: {has_line}")
            print("  " + text.replace("\n", "\n  "), flush=True)
    print(f"\n{named} of {len(rows)} verdicts name a marked line")


if __name__ == "__main__":
    sys.exit(main())
