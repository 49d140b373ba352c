#!/usr/bin/env python3
"""Writes real memory snapshots of PyTorch for each situation that `headroom report` explains.

usage: snapshots.py OUT [CASE...] [--stacks python|all] [--memory-gib 4]

Each case runs in a process of its own, may use --memory-gib of the GPU, and leaves OUT/CASE-STACKS.pickle.gz
and, where memory ran out, OUT/CASE-STACKS.log with the message. Needs PyTorch with CUDA; the cases with real
nets need torchvision and transformers. Paths of this machine are replaced.
"""
import argparse
import contextlib
import gzip
import os
import pickle
import subprocess
import sys
import sysconfig
import traceback

MIB = 2**20


# Nets: (module, function that makes a batch, loss).

def mlp(torch, width=2048, depth=6):
    layers = [layer for _ in range(depth) for layer in (torch.nn.Linear(width, width), torch.nn.ReLU())]
    net = torch.nn.Sequential(*layers).cuda()

    def batch(size):
        return torch.randn(size, width, device="cuda"), torch.randn(size, width, device="cuda")

    return net, batch, torch.nn.functional.mse_loss


def resnet(torch):
    import torchvision
    net = torchvision.models.resnet18().cuda()

    def batch(size):
        return torch.randn(size, 3, 160, 160).cuda(), torch.randint(0, 1000, (size,)).cuda()

    return net, batch, torch.nn.functional.cross_entropy


class Logits:
    """Calls a language model for its logits only."""

    def __init__(self, net):
        self.net = net

    def __call__(self, ids):
        return self.net(input_ids=ids).logits

    def __getattr__(self, name):
        return getattr(self.net, name)


def gpt2(torch):
    import transformers
    config = transformers.GPT2Config(n_layer=3, n_embd=384, n_head=6)
    net = Logits(transformers.GPT2LMHeadModel(config).cuda())

    def batch(size):
        ids = torch.randint(0, config.vocab_size, (size, 256), device="cuda")
        return ids, ids

    def loss(logits, labels):
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())

    return net, batch, loss


def bert(torch):
    import transformers
    config = transformers.BertConfig(num_hidden_layers=3, hidden_size=384, num_attention_heads=6,
                                     intermediate_size=1536)
    net = transformers.BertForSequenceClassification(config).cuda()

    def batch(size):
        return torch.randint(0, config.vocab_size, (size, 192), device="cuda"), torch.randint(0, 2, (size,)).cuda()

    def loss(output, labels):
        return torch.nn.functional.cross_entropy(output.logits, labels)

    return net, batch, loss


# Cases. Those that must run out of memory loop until they do; the limit is small.

def healthy(torch, make, size):
    net, batch, loss = make(torch)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
    for _ in range(5):
        x, y = batch(size)
        optimizer.zero_grad()
        value = loss(net(x), y)
        value.backward()
        optimizer.step()


def healthy_sgd(torch, make, size):
    net, batch, loss = make(torch)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    for _ in range(5):
        x, y = batch(size)
        optimizer.zero_grad()
        loss(net(x), y).backward()
        optimizer.step()


def healthy_accumulation(torch, make, size):
    """Gradients stay for four batches, which is meant."""
    net, batch, loss = make(torch)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
    for i in range(12):
        x, y = batch(size)
        (loss(net(x), y) / 4).backward()
        if i % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()


def healthy_cache(torch, make, size):
    """Keeps something in the first steps only, as caches do."""
    net, batch, loss = make(torch)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
    cache = {}
    for i in range(9):
        if i % 3 not in cache:
            cache[i % 3] = batch(size)
        x, y = cache[i % 3]
        optimizer.zero_grad()
        loss(net(x), y).backward()
        optimizer.step()


def healthy_sizes(torch, make, size):
    """Batches vary, but do not grow."""
    net, batch, loss = make(torch)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
    for i in (4, 2, 3, 4, 1, 3, 2):
        x, y = batch(size * i // 4)
        optimizer.zero_grad()
        loss(net(x), y).backward()
        optimizer.step()


def healthy_evaluation(torch, make, size):
    net, batch, loss = make(torch)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
    for _ in range(2):
        for _ in range(3):
            x, y = batch(size)
            optimizer.zero_grad()
            loss(net(x), y).backward()
            optimizer.step()
        total = 0.0
        net.eval()
        with torch.no_grad():
            for _ in range(4):
                x, y = batch(size)
                total += loss(net(x), y).item()
        net.train()
    return total


def recovers(torch, make, size):
    """Runs out of memory once and goes on with a smaller batch."""
    net, batch, loss = make(torch)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
    i = 0
    size *= 64
    while i < 4:
        try:
            x, y = batch(size)
            optimizer.zero_grad()
            loss(net(x), y).backward()
            optimizer.step()
            i += 1
        except torch.OutOfMemoryError:
            x = y = None
            optimizer.zero_grad()
            size //= 4


def leak(torch, make, size):
    net, batch, loss = make(torch)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
    kept = []
    for _ in range(1000):
        x, y = batch(size)
        optimizer.zero_grad()
        value = loss(net(x), y)
        value.backward()
        optimizer.step()
        kept.append(value.detach() + torch.zeros(48, 1024, 1024, device="cuda"))


def leak_without_failure(torch, make, size):
    net, batch, loss = make(torch)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
    kept = []
    for _ in range(6):
        x, y = batch(size)
        optimizer.zero_grad()
        value = loss(net(x), y)
        value.backward()
        optimizer.step()
        kept.append(torch.zeros(24, 1024, 1024, device="cuda"))
    return kept


def growing_batch(torch, make, size):
    net, batch, loss = make(torch)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
    for _ in range(20):
        for _ in range(3):
            x, y = batch(size)
            optimizer.zero_grad()
            loss(net(x), y).backward()
            optimizer.step()
        size *= 2


def evaluation_keeps_graphs(torch, make, size):
    net, batch, loss = make(torch)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
    for _ in range(3):
        x, y = batch(size)
        optimizer.zero_grad()
        loss(net(x), y).backward()
        optimizer.step()
    outputs = []
    net.eval()
    for _ in range(1000):
        x, y = batch(size)
        outputs.append(net(x))


def evaluation_drops_graphs(torch, make, size):
    """Each graph is freed, but a larger batch than in training does not fit with one."""
    net, batch, loss = make(torch)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
    for _ in range(3):
        x, y = batch(size)
        optimizer.zero_grad()
        loss(net(x), y).backward()
        optimizer.step()
    total = 0.0
    net.eval()
    for _ in range(6):
        x, y = batch(size * 4)
        total += loss(net(x), y).item()
    return total


def accumulated_losses(torch, make, size):
    net, batch, loss = make(torch)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
    total = 0
    for _ in range(1000):
        x, y = batch(size)
        total = total + loss(net(x), y)
    total.backward()
    optimizer.step()


def gradient_not_freed(torch, make, size):
    """Evaluates large batches while the gradients of the last step are still there."""
    net, batch, loss = make(torch)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    for _ in range(4):
        x, y = batch(8)
        loss(net(x), y).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)


def fragmentation(torch, make, size):
    """Cuts one segment into blocks, frees every other one, then asks for one larger than each hole."""
    net, batch, loss = make(torch)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
    for _ in range(2):
        x, y = batch(size)
        optimizer.zero_grad()
        loss(net(x), y).backward()
        optimizer.step()
    x = y = None
    optimizer.zero_grad()
    torch.cuda.empty_cache()
    allowed = int(LIMIT["bytes"] * 0.98) - torch.cuda.memory_reserved()
    count = allowed // (30 * MIB)
    whole = torch.empty(count * 30 * MIB, dtype=torch.uint8, device="cuda")
    del whole  # its segment stays cached and is cut below
    pieces = [torch.empty(15 * MIB, dtype=torch.uint8, device="cuda") for _ in range(2 * count)]
    for i in range(0, len(pieces), 2):
        pieces[i] = None
    return torch.empty(count * 15 * MIB // 2, dtype=torch.uint8, device="cuda")


def optimizer_first_step(torch, make, size):
    """Weights and gradients fit, the state of Adam does not."""
    width = int((LIMIT["bytes"] * 0.30 / 4 / 6) ** 0.5) // 256 * 256
    net = torch.nn.Sequential(*[torch.nn.Linear(width, width) for _ in range(6)]).cuda()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
    for _ in range(3):
        x = torch.randn(16, width, device="cuda")
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()


NETS = {"mlp": (mlp, 2048), "resnet": (resnet, 16), "gpt2": (gpt2, 4), "bert": (bert, 8)}
LIMIT = {"bytes": 0}
CASES = {
    "healthy-resnet": (healthy, "resnet"),
    "healthy-gpt2": (healthy, "gpt2"),
    "healthy-bert": (healthy, "bert"),
    "healthy-sgd": (healthy_sgd, "resnet"),
    "healthy-accumulation": (healthy_accumulation, "mlp"),
    "healthy-cache": (healthy_cache, "resnet"),
    "healthy-sizes": (healthy_sizes, "gpt2"),
    "healthy-evaluation": (healthy_evaluation, "resnet"),
    "recovers": (recovers, "mlp"),
    "leak": (leak, "mlp"),
    "leak-resnet": (leak_without_failure, "resnet"),
    "growing-batch-resnet": (growing_batch, "resnet"),
    "growing-batch-gpt2": (growing_batch, "gpt2"),
    "evaluation-keeps-graphs": (evaluation_keeps_graphs, "resnet"),
    "evaluation-keeps-graphs-bert": (evaluation_keeps_graphs, "bert"),
    "evaluation-drops-graphs": (evaluation_drops_graphs, "resnet"),
    "accumulated-losses": (accumulated_losses, "mlp"),
    "accumulated-losses-gpt2": (accumulated_losses, "gpt2"),
    "gradient-not-freed": (gradient_not_freed, "mlp"),
    "fragmentation": (fragmentation, "mlp"),
    "optimizer-first-step": (optimizer_first_step, "mlp"),
}


def shown_path(path):
    """`path` without what it tells of this machine."""
    packages = "/site-packages/"
    if packages in path:
        return "/home/user/.venv/lib/python3/site-packages/" + path.split(packages, 1)[1]
    folder = os.path.dirname(os.path.abspath(__file__))
    if path.startswith(folder):
        return "/home/user/project/train.py" if path == os.path.abspath(__file__) else "/home/user/project/other.py"
    library = sysconfig.get_paths()["stdlib"]
    if path.startswith(library):
        return "/usr/lib/python3" + path[len(library):]
    return os.path.basename(path) if path.startswith("/") else path


def save(snapshot, path):
    seen = set()
    lists = [event.get("frames") for events in snapshot["device_traces"] for event in events]
    for segment in snapshot["segments"]:
        lists += [segment.get("frames")] + [block.get("frames") for block in segment["blocks"]]
    for frames in lists:
        for frame in frames or ():
            if id(frame) not in seen:
                seen.add(id(frame))
                frame["filename"] = shown_path(frame["filename"])
    with gzip.open(path, "wb", 9) as file:
        pickle.dump(snapshot, file)


def run_case(name, stacks, out, gib):
    import torch
    function, net = CASES[name]
    make, size = NETS[net]
    torch.manual_seed(0)
    total = torch.cuda.get_device_properties(0).total_memory
    LIMIT["bytes"] = int(gib * 2**30)
    torch.cuda.set_per_process_memory_fraction(min(1.0, LIMIT["bytes"] / total))
    torch.cuda.memory._record_memory_history(max_entries=200_000, stacks=stacks)
    path = os.path.join(out, f"{name}-{stacks}")
    kept = None
    try:
        kept = function(torch, make, size)
    except torch.OutOfMemoryError as error:
        traceback.clear_frames(error.__traceback__)  # as when the interpreter has unwound to the top
        with open(path + ".log", "w", encoding="utf-8") as log:
            log.write(f"torch.OutOfMemoryError: {error}\n")
    save(torch.cuda.memory._snapshot(), path + ".pickle.gz")
    del kept


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("cases", nargs="*", metavar="CASE", help="default: all of them")
    parser.add_argument("--stacks", choices=["python", "all"], help="default: both, one after the other")
    parser.add_argument("--memory-gib", type=float, default=4)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    unknown = [case for case in arguments.cases if case not in CASES]
    if unknown:
        parser.error(f"unknown case {unknown[0]}; known: {', '.join(CASES)}")
    os.makedirs(arguments.out, exist_ok=True)
    if arguments.child:
        run_case(arguments.cases[0], arguments.stacks, arguments.out, arguments.memory_gib)
        return 0
    failed = 0
    for case in arguments.cases or CASES:
        for stacks in [arguments.stacks] if arguments.stacks else ["python", "all"]:
            command = [sys.executable, os.path.abspath(__file__), arguments.out, case, "--stacks", stacks,
                       "--memory-gib", str(arguments.memory_gib), "--child"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            path = os.path.join(arguments.out, f"{case}-{stacks}")
            if done.returncode != 0:
                failed += 1
                print(f"{case} {stacks}: failed: {done.stderr.strip().splitlines()[-1:]}", flush=True)
                continue
            message = "no failure"
            with contextlib.suppress(FileNotFoundError), open(path + ".log", encoding="utf-8") as log:
                message = log.read(110).strip()
            print(f"{case} {stacks}: {os.path.getsize(path + '.pickle.gz')} bytes; {message}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
