"""Compares the tracer with real peaks of PyTorch: bench/check_tracer.py TABLE MODELS.py [MODEL...]

TABLE is a CSV file (tests/tools/trace/recorded/peaks.csv) or a Markdown table with rows `| model | batch | precision |
optimizer | requested | allocated | reserved | base |` in MiB, measured on a GPU in four training steps; `base`, which
may be missing, is what earlier rows of the process had left allocated, the workspaces of libraries. MODELS.py defines
`ALL`: for each model a pair of a function build(device), which returns (net, batch, loss) with batch(n) -> (inputs,
targets) and loss(net, inputs, targets), and the batch sizes. With `headroom` in PATH the reserved bytes under the
strategy caching are also compared. The rows of a model were measured in one process, so in all but its first, or those
whose base is 0, the workspaces of libraries stand at the beginning.
"""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile

os.environ["CUDA_VISIBLE_DEVICES"] = ""
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python"))

import torch  # noqa: E402

from headroom.torch import trace  # noqa: E402
from headroom.torch.recorder import LIBRARY  # noqa: E402

MIB = 1 << 20
_STEPS = 4


def read_table(path):
    rows, has_base = [], False
    with open(path, encoding="utf-8") as file:
        for line in file:
            cells = line.split(",") if path.endswith(".csv") else line.split("|")[1:-1]
            cells = [cell.strip() for cell in cells]
            if cells[:1] == ["model"]:
                has_base = cells[7:8] == ["base"]
            if len(cells) >= 7 and cells[1].isdigit() and cells[2] in ("tf32", "bf16"):
                base = float(cells[7]) if has_base else None
                rows.append(
                    (*cells[:1], int(cells[1]), *cells[2:4], float(cells[4]), float(cells[6]), base)
                )
    return rows


def load_models(path):
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    spec = importlib.util.spec_from_file_location("models", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.ALL


def make_training(build, precision, optimizer):
    def make_step(size):
        net, batch, loss = build("cuda")
        net.train()
        kinds = {
            "adamw": lambda p: torch.optim.AdamW(p, 1e-4),
            "sgd": lambda p: torch.optim.SGD(p, 1e-3),
        }
        opt = kinds[optimizer](net.parameters())
        inputs, targets = batch(size)

        def step():
            opt.zero_grad()
            with torch.autocast("cuda", torch.bfloat16, enabled=precision == "bf16"):
                value = loss(net, inputs, targets)
            value.backward()
            opt.step()

        return step

    return make_step


def reserved_bytes(traced, folder):
    command = shutil.which("headroom")
    if command is None:
        return None
    path = os.path.join(folder, "run.trace")
    traced.save(path)
    result = subprocess.run(
        [command, "replay", path, "--strategy", "caching", "--json"],
        check=True,
        capture_output=True,
        text=True,
    )
    return json.loads(result.stdout)["results"][0]["peak_reserved_bytes"]


def put_libraries_first(traced):
    """Moves the libraries' blocks to the front, as in a process whose libraries have started."""
    events = traced.recorder.events
    libraries = [event for event in events if event[0] == "a" and event[1].category == LIBRARY]
    others = [event for event in events if not (event[0] == "a" and event[1].category == LIBRARY)]
    traced.recorder.events = libraries + others


def summary(name, errors):
    errors = sorted(abs(error) for error in errors)
    print(
        f"{name}: {len(errors)} rows, median {errors[len(errors) // 2]:.2f} %, 90th percentile "
        f"{errors[min(int(0.9 * len(errors)), len(errors) - 1)]:.2f} %, at most {errors[-1]:.2f} %"
    )


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    models = load_models(sys.argv[2])
    wanted = sys.argv[3:]
    requested_errors, reserved_errors, seen = [], [], set()
    with tempfile.TemporaryDirectory() as folder:
        for model, batch, precision, optimizer, requested, reserved, base in read_table(
            sys.argv[1]
        ):
            if model not in models or (wanted and model not in wanted):
                continue
            step = make_training(models[model][0], precision, optimizer)
            traced = trace(step, batch=batch, steps=_STEPS)
            if model in seen if base is None else base > 0:
                put_libraries_first(traced)
            seen.add(model)
            error = 100 * (traced.peak_bytes / MIB / requested - 1)
            requested_errors.append(error)
            text = f"{model:14} {batch:4} {precision} {optimizer:6} {traced.peak_bytes / MIB:9.1f} {error:6.2f} %"
            held = reserved_bytes(traced, folder)
            if held is not None:
                reserved_errors.append(100 * (held / MIB / reserved - 1))
                text += f"   reserved {held / MIB:9.1f} {reserved_errors[-1]:6.2f} %"
            print(f"{text}   {traced.seconds:.1f} s", flush=True)
    summary("requested", requested_errors)
    if reserved_errors:
        summary("reserved", reserved_errors)


if __name__ == "__main__":
    main()
