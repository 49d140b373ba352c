"""A training as a command, in a folder of its own, that a test changes and traces."""

import os
import sys
import tempfile
import textwrap

import torch._dynamo  # noqa: F401  # which a trace loads: here once for all copies of this process

from headroom.__main__ import main
from headroom.torch.child import in_child
from in_folder import InFolder

# A training; a test gives the lines of BEFORE, STEP and AFTER.
TRAINING = """
    import argparse, os, sys, torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    def main():
        parser = argparse.ArgumentParser()
        parser.add_argument("-b", "--batch-size", type=int, default=16)
        parser.add_argument("--eval-batch-size", type=int, default=16)
        parser.add_argument("--epochs", type=int, default=2)
        args = parser.parse_args()
        data = TensorDataset(torch.randn(256, 64), torch.zeros(256, dtype=torch.long))
        loader = DataLoader(data, args.batch_size, num_workers=2)
        net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 8)).cuda()
        optimizer = torch.optim.AdamW(net.parameters())
        BEFORE
        for epoch in range(args.epochs):
            net.train()
            for x, y in loader:
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(net(x.cuda()), y.cuda())
                loss.backward()
                STEP
            AFTER

    if __name__ == "__main__":
        main()
"""
EVALUATION = """
net.eval()
with torch.no_grad():
    for x, y in DataLoader(data, args.eval_batch_size):
        net(x.cuda())
"""


class TracedTraining(InFolder):
    def program(self, before="pass", step="optimizer.step()", after="pass"):
        lines = []
        for line in textwrap.dedent(TRAINING).splitlines():
            made = {"BEFORE": before, "STEP": step, "AFTER": after}.get(line.strip(), line.strip())
            lines.append(textwrap.indent(made, line[: len(line) - len(line.lstrip())]))
        self.text = "\n".join(lines)
        self.write("train.py", self.text)

    def run_main(self, *words):
        """The exit code of the command in a copy of this process; its output goes to two members."""

        def run():
            for descriptor, name in ((1, "out"), (2, "errors")):
                with open(os.path.join(folder, name), "w") as file:
                    os.dup2(file.fileno(), descriptor)
            sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
            return main(["trace", *words])

        with tempfile.TemporaryDirectory() as folder:
            code = in_child(run)
            with open(os.path.join(folder, "out")) as out, open(
                os.path.join(folder, "errors")
            ) as errors:
                self.out, self.errors = out.read(), errors.read()
        return code

    def trace(self, *words, options=(), code=0):
        """Runs it; the marks of its trace as (step, phase), or the error."""
        self.assertEqual(
            self.run_main("-o", "run.trace", *options, "--", *words), code, self.errors
        )
        if code:
            return self.errors.splitlines()[-1]
        with open("run.trace") as file:
            self.lines = file.read().splitlines()
        marks = [tuple(map(int, line.split(",")[1:3])) for line in self.lines if line[:2] == "m,"]
        return [mark for mark, before in zip(marks, [None, *marks]) if mark != before]

    def largest(self):
        return max(int(line.split(",")[2]) for line in self.lines if line.startswith("a,"))
