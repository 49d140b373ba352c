#!/usr/bin/env python3
"""Measures the growth of each command's time and memory with its input.

usage: large_inputs.py HEADROOM [--events N...] [--nodes N...] [--only TEXT]

Writes traces of N events (250000 1000000), snapshots of as many with few stacks and with one for each, logs of as many
lines and models of N nodes (6250 25000; a training step has about four times as many), runs each command on each, and
prints a line for each: seconds of wall clock and of processor time, the most memory, and how much longer it took than
with the smallest input, per event. A command that takes longer than a minute of processor time is ended. fill.csv
allocates N blocks of up to 1 MiB and then frees them in random order (2 N events); waves.csv does so four times with N
/ 8 blocks, of which every tenth stays; mix.csv has N events and N / 10 blocks live at once; streams.csv has N events on
4,096 streams, random.csv N on one, where more and more blocks live and are freed at random. Exit codes: 0 every command
took at most 5 s (10 s for models) and 1 GiB, 5 otherwise, 1 anything else.
"""

import argparse
import multiprocessing
import os
import pathlib
import pickle
import random
import resource
import struct
import subprocess
import sys
import tempfile
import time

SECONDS, MODEL_SECONDS, MIB = 5.0, 10.0, 1024
MOST_SECONDS = 60  # of processor time
STRATEGIES = (
    "grab-all allow-growth two-ended caching pytorch,expandable_segments:True pool arena mapped "
    "stream-ordered packed direct"
).split()


def write_random(file, events, choose, share, most_live, most_bytes):
    """`share` of the events allocate up to `most_bytes` while fewer than `most_live` blocks live; the others free one."""
    live, made = [], 0
    for _ in range(events):
        if len(live) < most_live and (not live or choose.random() < share):
            file.write(f"a,{made},{choose.randint(1, most_bytes)}\n")
            live.append(made)
            made += 1
        else:
            at = choose.randrange(len(live))
            live[at], live[-1] = live[-1], live[at]
            file.write(f"f,{live.pop()}\n")


def write_traces(folder, events):
    choose = random.Random(1)
    with open(folder / "fill.csv", "w") as file:
        file.writelines(f"a,{i},{choose.randint(1, 2**20)}\n" for i in range(events))
        file.writelines(f"f,{i}\n" for i in choose.sample(range(events), events))
    with open(folder / "waves.csv", "w") as file:
        wave = events // 8
        for begin in range(0, 4 * wave, wave):
            blocks = range(begin, begin + wave)
            file.writelines(f"a,{i},{choose.randint(1, 2**20)}\n" for i in blocks)
            file.writelines(f"f,{i}\n" for i in choose.sample(blocks, wave) if i % 10)
    with open(folder / "streams.csv", "w") as file:  # as RMM logs
        file.write("Thread,Time,Action,Pointer,Size,Stream\n")
        live, address = [], 0x7F0000000000
        for i in range(events):
            time_of_day = f"{i // 3600000:02d}:{i // 60000 % 60:02d}:{i // 1000 % 60:02d}.{i % 1000:06d}"
            if not live or choose.random() < 0.55:
                block = (f"{address:#x}", choose.randint(1, 2**22), f"{choose.randrange(4096):#x}")
                live.append(block)
                address += 2**22
                action = "allocate"
            else:
                at = choose.randrange(len(live))
                live[at], live[-1] = live[-1], live[at]
                block, action = live.pop(), "free"
            file.write(f"0,{time_of_day},{action},{block[0]},{block[1]},{block[2]}\n")
    with open(folder / "random.csv", "w") as file:
        write_random(file, events, choose, share=0.55, most_live=events, most_bytes=2**22)
    with open(folder / "mix.csv", "w") as file:
        write_random(file, events, choose, share=0.6, most_live=events // 10, most_bytes=2**20)


def write_snapshot(path, events):
    """A training loop: each step allocates in modules forward, frees backward, and updates."""

    def frame(file, line, name):
        return {"filename": file, "line": line, "name": name}

    torch = "/torch/nn/modules/module.py"
    train = [frame("/src/train.py", 40, "main"), frame("/src/train.py", 80, "<module>")]
    modules = []
    for layer in range(50):
        inner = []
        for depth in range(8):
            inner += [frame(torch, 1700, "_call_impl"), frame("/src/net.py", 8 * layer + depth, "forward")]
        modules.append(inner[::-1] + train)
    backward = [frame("/torch/autograd/__init__.py", 260, "backward")] + train
    optimizer = [frame("/torch/optim/adam.py", 160, "step")] + train
    trace, top, clock = [], 0x7F0000000000, 1700000000000000

    def add(action, address, size, frames):
        nonlocal clock
        clock += 1
        trace.append({"action": action, "addr": address, "size": size, "stream": 0, "time_us": clock,
                      "frames": list(frames)})  # PyTorch makes a list for each event; fmt: skip

    per_step, choose = 2000, random.Random(2)
    while len(trace) < events:
        live = []
        for i in range(per_step // 4):
            size = choose.randint(1, 1 << 12) * 512
            live.append((top, size))
            add("alloc", top, size, modules[i % len(modules)])
            top += size
        for address, size in reversed(live):
            add("free_requested", address, size, backward)
            add("free_completed", address, size, backward)
        for _ in range(per_step // 12):
            add("alloc", top, 4096, optimizer)
            add("free_requested", top, 4096, optimizer)
            add("free_completed", top, 4096, optimizer)
        top = 0x7F0000000000
    snapshot = {"segments": [], "device_traces": [trace], "allocator_settings": {}}
    with open(path, "wb") as file:
        pickle.dump(snapshot, file, protocol=4)


def write_own_stacks(path, events):
    """Nine tenths allocate, each on a line of its own: no two stacks are the same."""
    call = {"filename": "/torch/nn/modules/module.py", "line": 1700, "name": "_call_impl"}
    main = {"filename": "/src/train.py", "line": 40, "name": "main"}
    trace, live, choose = [], [], random.Random(3)
    address, clock = 0x7F0000000000, 1700000000000000
    while len(trace) < events:
        clock += 1
        if len(trace) % 10 or not live:
            size, line = choose.randint(1, 1 << 12) * 512, len(trace)
            frame = {"filename": f"/src/file{line % 311}.py", "line": line // 311, "name": "forward"}
            trace.append({"action": "alloc", "addr": address, "size": size, "stream": choose.randrange(16),
                          "time_us": clock, "frames": [frame, call, main]})  # fmt: skip
            live.append((address, size))
            address += size
        else:
            freed, size = live.pop()
            trace.append({"action": "free_completed", "addr": freed, "size": size, "stream": 0,
                          "time_us": clock, "frames": []})  # fmt: skip
    with open(path, "wb") as file:
        pickle.dump({"segments": [], "device_traces": [trace], "allocator_settings": {}}, file, protocol=4)


def write_log(path, lines):
    with open(path, "w") as file:
        for i in range(lines - 4):
            file.write(f"[2026-11-22 10:00:{i % 60:02}] step {i} loss {1 / (i + 1):.5f} lr 0.001 epoch 3\n")
        file.write(
            "Traceback (most recent call last):\n"
            '  File "train.py", line 7, in <module>\n    loss.backward()\n'
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity "
            "of 23.64 GiB of which 1.20 GiB is free. Of the allocated memory 20.00 GiB is allocated by PyTorch, "
            "and 1.50 GiB is reserved by PyTorch but unallocated.\n"
        )


def varint(value):
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes(out + bytes([value]))


def field(number, value):
    """Encodes a field of a message in protocol buffers: a number, or bytes."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    if isinstance(value, str):
        value = value.encode()
    return varint(number << 3 | 2) + varint(len(value)) + value


def write_model(path, nodes):
    """Blocks of product, bias, relu and residual; 64 weights, used in turn."""
    width = 64

    def tensor(name, *shape):
        count = width * width if len(shape) == 2 else width
        data = struct.pack(f"<{count}f", *(((7 * i) % 13 - 6) / 200 for i in range(count)))
        return b"".join(field(1, axis) for axis in shape) + field(2, 1) + field(8, name) + field(9, data)

    def value(name):
        shape = field(1, field(2, "batch")) + field(1, field(1, width))
        return field(1, name) + field(2, field(1, field(1, 1) + field(2, shape)))

    graph, before = [], "x"
    for i in range(nodes // 4):
        for kind, inputs, output in (
            ("MatMul", (before, f"w{i % 64}"), f"p{i}"),
            ("Add", (f"p{i}", f"b{i % 64}"), f"a{i}"),
            ("Relu", (f"a{i}",), f"r{i}"),
            ("Add", (f"r{i}", before), f"y{i}"),
        ):
            node = b"".join(field(1, name) for name in inputs)
            graph.append(field(1, node + field(2, output) + field(3, f"{kind}_{i}") + field(4, kind)))
        before = f"y{i}"
    graph.append(field(2, "net"))
    for i in range(64):
        graph += [field(5, tensor(f"w{i}", width, width)), field(5, tensor(f"b{i}", width))]
    graph += [field(11, value("x")), field(12, value(before))]
    path.write_bytes(field(1, 8) + field(7, b"".join(graph)) + field(8, field(2, 17)))


def write_inputs(folder, size, is_model):
    if is_model:
        return write_model(folder / "net.onnx", size)
    write_traces(folder, size)
    write_snapshot(folder / "snapshot.pickle", size)
    write_own_stacks(folder / "stacks.pickle", size)
    write_log(folder / "train.log", size)


def trace_commands(filled_gib):
    """In three times of what lives in fill.csv everything fits, in half of it nothing."""
    for name in STRATEGIES:
        yield f"replay fill.csv --capacity {3 * filled_gib}GiB --strategy {name}"
        yield f"replay fill.csv --capacity {filled_gib // 2}GiB --strategy {name}"
        yield f"replay waves.csv --strategy {name}"
        yield f"replay mix.csv --strategy {name}"
        yield f"replay random.csv --capacity 4TiB --strategy {name}"
        if name != "packed":  # it plans for one stream
            yield f"replay streams.csv --capacity 4TiB --strategy {name}"
    yield "replay mix.csv"
    for name in ("caching", "mapped", "arena"):
        yield f"replay mix.csv --strategy {name} --minimum"
    yield "replay mix.csv --strategy caching --snapshot-at peak"
    yield "replay mix.csv --strategy caching --record run.trace"
    yield from (f"report {file} --html page.html" for file in ("fill.csv", "run.trace", "snapshot.pickle"))
    yield "diff mix.csv run.trace"
    yield "assert run.trace --no-leaks"
    yield from (f"predict {file} --device h200" for file in ("mix.csv", "run.trace", "snapshot.pickle"))
    yield "fit mix.csv --least-memory"
    yield "compare mix.csv --strategy caching --runs 1"
    yield "replay snapshot.pickle --strategy caching"
    yield "replay stacks.pickle --strategy caching"
    yield "report stacks.pickle --html page.html"
    yield "predict stacks.pickle --device h200"
    yield "diff stacks.pickle stacks.pickle"
    yield "compare stacks.pickle --strategy caching --runs 1"
    yield "explain train.log"


def model_commands():
    common = "--model net.onnx --batch 4 --device sim:h200 --loss mse"
    yield "show net.onnx --batch 4"
    yield f"predict {common}"
    yield f"predict {common} --plan packed"
    yield f"predict {common} --plan parallel"
    yield f"run {common} --steps 1 --record model.trace"
    yield f"run {common} --steps 1 --plan packed"
    yield f"fit {common} --most 8"
    yield f"solve {common} --memory 2GiB"
    yield "report model.trace --html page.html"


def measure(headroom, command, folder):
    began = time.monotonic()
    process = subprocess.Popen(
        [headroom, *command.split()],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (MOST_SECONDS, MOST_SECONDS)),
    )
    output = process.stdout.read().decode(errors="replace")
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return {
        "code": process.returncode,
        "wall": time.monotonic() - began,
        "cpu": usage.ru_utime + usage.ru_stime,
        "mib": usage.ru_maxrss / 1024,
        "output": output,
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("headroom", type=pathlib.Path)
    parser.add_argument("--events", type=int, nargs="*", default=[250_000, 1_000_000])
    parser.add_argument("--nodes", type=int, nargs="*", default=[6_250, 25_000])
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    headroom = options.headroom.resolve()
    broken, first, began = 0, {}, time.monotonic()
    print(f"{'n':>8} {'wall s':>7} {'cpu s':>7} {'MiB':>6} {'per n':>6} {'code':>4}  command", flush=True)
    for sizes, is_model in ((options.events, False), (options.nodes, True)):
        for size in sizes:
            with tempfile.TemporaryDirectory() as name:
                folder = pathlib.Path(name)
                # In another process: this process's memory would count as its children's.
                writer = multiprocessing.Process(target=write_inputs, args=(folder, size, is_model))
                writer.start()
                writer.join()
                commands = model_commands() if is_model else trace_commands(size // 2048)
                for number, command in enumerate(commands):
                    makes_input = "--record" in command
                    if options.only not in command and not makes_input:
                        continue
                    result = measure(headroom, command, folder)
                    per_event = result["cpu"] / size
                    least = first.setdefault((is_model, number), per_event)
                    limit = MODEL_SECONDS if is_model else SECONDS
                    # The smaller of both: other programs may take the processors, and threads may share the work.
                    seconds = min(result["wall"], result["cpu"])
                    wrong = seconds > limit or result["mib"] > MIB or result["code"] not in (0, 3, 5)
                    broken += wrong
                    print(
                        f"{size:8} {result['wall']:7.2f} {result['cpu']:7.2f} {result['mib']:6.0f} "
                        f"{per_event / least:6.2f} {result['code']:4}  {command}{'  <--' if wrong else ''}",
                        flush=True,
                    )
                    if result["code"] not in (0, 3, 5):
                        print(result["output"][-300:])
    print(f"{broken} commands took too long or too much; all took {time.monotonic() - began:.0f} s")
    return 5 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
