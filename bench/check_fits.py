"""Runs programs on a GPU with exactly the memory that Headroom calls enough: bench/check_fits.py TABLE [PROGRAM...]

TABLE has the rows of check_programs.py. For each row `headroom predict` tells what PyTorch's allocator reserves, and
`headroom fit --least-memory` the least memory with which the program runs. The program then runs three steps in a
process of its own under PyTorch's own limit: at the first figure, at the second, and at 98 % of the second. A row whose
program dies at a figure that was called enough is a false fit; one that runs with 2 % less could have been told less.
`headroom` is taken from PATH; this Python must have PyTorch and, without --predict-only, see the GPU. Prints one row of
Markdown for each.
"""

import argparse
import concurrent.futures
import csv
import importlib.util
import json
import os
import subprocess
import sys

MIB = 2**20


def run_limited(program, batch, limit):
    """Three steps of a program whose allocator may reserve `limit` bytes; 0: any. Prints its peaks as JSON."""
    import torch

    if limit:
        torch.cuda.set_per_process_memory_fraction((limit + 0.5) / torch.cuda.mem_get_info()[1])
    path, _, name = program.partition(":")
    sys.path.insert(0, os.path.dirname(path))
    spec = importlib.util.spec_from_file_location("program", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    step = getattr(module, name)(batch)
    for _ in range(3):
        step()
    torch.cuda.synchronize()
    stats = torch.cuda.memory_stats()
    print(
        json.dumps(
            {
                "requested": stats["requested_bytes.all.peak"],
                "reserved": stats["reserved_bytes.all.peak"],
                "retries": stats["num_alloc_retries"],
            }
        )
    )


def child(program, batch, limit):
    """The peaks, or the last line of what the program said when it died."""
    command = [sys.executable, os.path.abspath(__file__), "--one", program, batch, str(limit)]
    result = subprocess.run(command, capture_output=True, text=True)
    lines = result.stdout.strip().splitlines()
    if result.returncode == 0 and lines:
        return json.loads(lines[-1]), ""
    return None, ([line for line in result.stderr.strip().splitlines() if "Error" in line] or ["no error"])[-1]


def ask(words, seconds=500):
    try:
        result = subprocess.run(["headroom", *words, "--json"], capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return {"error": f"no answer in {seconds} s"}
    try:
        return json.loads(result.stdout)
    except ValueError:
        return {"error": (result.stderr.strip().splitlines() or ["no answer"])[-1]}


def figures(program, batch, device):
    """Returns what is called enough, in bytes of the allocator: by predict, and the least; or the error."""
    predicted = ask(["predict", program, "--batch", batch, "--device", device])
    if "error" in predicted:
        return None, None, predicted["error"]
    least = ask(["fit", program, "--batch", batch, "--device", device, "--least-memory"])
    return predicted["peak_reserved_bytes"], least.get("predicted_reserved_bytes"), ""


def remembered(path, key, compute):
    """Returns what was written to that file for the key, or what `compute` says, which is written."""
    known = {}
    if path and os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            known = dict(json.loads(line) for line in file)
    if key not in known:
        known[key] = compute()
        if path:
            with open(path, "a", encoding="utf-8") as file:
                file.write(json.dumps([key, known[key]]) + "\n")
    return known[key]


def check(folder, row, options):
    program = os.path.join(folder, row["program"])
    key = f"{row['program']} {row['batch']}"
    ask_for = lambda: figures(program, row["batch"], options.device)
    enough, least, error = remembered(options.figures, key, ask_for)
    if error:
        return row, error, {}
    outcomes = {}
    if options.predict_only:
        return row, "", {}
    for name, limit in (("enough", enough), ("least", least), ("less", least and int(0.98 * least))):
        if limit:
            outcomes[name] = (limit, *child(program, row["batch"], limit))
    return row, "", outcomes


def text_of(outcome):
    if outcome is None:
        return ""
    limit, peaks, error = outcome
    if error:
        return f"{limit / MIB:.0f} {'dies' if 'out of memory' in error else error[:120]}"
    return f"{limit / MIB:.0f} runs"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("table")
    parser.add_argument("programs", nargs="*")
    parser.add_argument("--device", default="h100")
    parser.add_argument("--jobs", type=int, default=1, help="rows at once; each has a limit of its own")
    parser.add_argument("--figures", metavar="FILE", help="keep what was called enough there, and read it from there")
    parser.add_argument("--predict-only", action="store_true", help="fill --figures, run nothing")
    options = parser.parse_args()
    folder = os.path.dirname(os.path.abspath(options.table))
    with open(options.table, encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    rows = [row for row in rows if not options.programs or any(name in row["program"] for name in options.programs)]
    counts = {"enough": 0, "least": 0, "less": 0}
    died = dict.fromkeys(counts, 0)
    print("| program | batch | at what predict reserves, MiB | at the least memory | with 2 % less |")
    print("| --- | --- | --- | --- | --- |")
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for future in concurrent.futures.as_completed([pool.submit(check, folder, row, options) for row in rows]):
            row, error, outcomes = future.result()
            if error:
                print(f"| {row['program']} | {row['batch']} | {error} | | |", flush=True)
                continue
            for name, (_, peaks, said) in outcomes.items():
                counts[name] += 1
                died[name] += peaks is None
            cells = [text_of(outcomes.get(name)) for name in counts]
            print(f"| {row['program']} | {row['batch']} | {' | '.join(cells)} |", flush=True)
    print(f"\nfalse fits: {died['enough']} of {counts['enough']} at predict's figure")
    print(f"{died['least']} of {counts['least']} at the least memory")
    print(f"{counts['less'] - died['less']} of {counts['less']} would have run with 2 % less")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        run_limited(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    else:
        main()
