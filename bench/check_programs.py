"""Compares `headroom predict` with measured peaks of programs: bench/check_programs.py TABLE [PROGRAM...]

TABLE is a CSV file with the columns program (as train.py:make_step, relative to the table), batch, requested_mib and
reserved_mib, measured on a GPU in three steps. Each PROGRAM selects the rows whose program contains it. `headroom` is
taken from PATH, and HEADROOM_PYTHON names the Python that has PyTorch. Prints one row of Markdown for each program and
a summary.
"""

import argparse
import csv
import json
import os
import subprocess
import time


def predict(program, batch, device):
    """The answer of `headroom predict` as (requested MiB, reserved MiB, ""), or (None, None, the error)."""
    command = ["headroom", "predict", program, "--batch", batch, "--device", device, "--json"]
    result = subprocess.run(command, capture_output=True, text=True)
    try:
        answer = json.loads(result.stdout)
    except ValueError:
        return None, None, result.stderr.strip().split("\n")[-1]
    return answer["peak_requested_bytes"] / 2**20, answer["peak_reserved_bytes"] / 2**20, ""


def summarize(name, errors):
    errors = sorted(errors, key=abs)
    worst = errors[-1] if errors else 0
    ninth = errors[min(int(0.9 * len(errors)), len(errors) - 1)] if errors else 0
    print(f"{name}: 90th percentile {abs(ninth):.2f} %, worst {worst:+.2f} %")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("table")
    parser.add_argument("programs", nargs="*")
    parser.add_argument("--device", default="h100")
    options = parser.parse_args()
    folder = os.path.dirname(os.path.abspath(options.table))
    with open(options.table, encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    rows = [
        row
        for row in rows
        if not options.programs or any(name in row["program"] for name in options.programs)
    ]
    errors = {"requested": [], "reserved": []}
    print("| program | batch | requested MiB | reserved MiB | predicted, % | seconds |")
    print("| --- | --- | --- | --- | --- | --- |")
    for row in rows:
        start = time.perf_counter()
        *predicted, error = predict(
            os.path.join(folder, row["program"]), row["batch"], options.device
        )
        seconds = time.perf_counter() - start
        text = error
        if not error:
            off = []
            for (name, list_), value in zip(errors.items(), predicted):
                off.append(100 * (value / float(row[f"{name}_mib"]) - 1))
                list_.append(off[-1])
            text = f"{off[0]:+.2f} / {off[1]:+.2f}"
        print(
            f"| {row['program']} | {row['batch']} | {row['requested_mib']} | {row['reserved_mib']} | {text} | "
            f"{seconds:.0f} |",
            flush=True,
        )
    print(f"\n{len(errors['requested'])} of {len(rows)} programs got an answer")
    for name, values in errors.items():
        summarize(name, values)


if __name__ == "__main__":
    main()
