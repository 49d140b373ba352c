#!/usr/bin/env python
"""Train a small CNN on (synthetic) bird-song spectrograms.

Some recordings are broken (dropouts become NaN after the log), so batches with
a non-finite loss are skipped and listed at the end for whoever cleans the data.
"""
import argparse
import random

import torch
from torch import nn
import torch.nn.functional as F


class BadBatch(RuntimeError):
    pass


def conv_block(cin, cout):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, padding=1, bias=False),
        nn.GroupNorm(8, cout),
        nn.GELU(),
        nn.MaxPool2d(2),
    )


class SongNet(nn.Module):
    def __init__(self, n_species):
        super().__init__()
        self.stem = nn.Conv2d(1, 32, 5, stride=2, padding=2)
        self.body = nn.Sequential(conv_block(32, 64), conv_block(64, 128), conv_block(128, 256))
        self.fc = nn.Linear(256, n_species)

    def forward(self, x):
        h = self.body(self.stem(x))
        return self.fc(h.mean(dim=(2, 3)))


class Recordings:
    """Endless batches of mel spectrograms; about a third holds a broken clip."""

    def __init__(self, batch_size, n_species, seed=0):
        self.rng = random.Random(seed)
        self.gen = torch.Generator().manual_seed(seed)
        self.batch_size = batch_size
        self.n_species = n_species

    def next(self):
        power = torch.rand(self.batch_size, 1, 128, 256, generator=self.gen) + 1e-3
        if self.rng.random() < 0.35:
            broken = self.rng.randrange(self.batch_size)
            start = self.rng.randrange(200)
            power[broken, :, :, start:start + 20] = -1e-3      # DC drift after a dropout
        label = torch.randint(self.n_species, (self.batch_size,), generator=self.gen)
        return torch.log(power), label


def train_step(model, optimizer, mel, label):
    logits = model(mel)
    loss = F.cross_entropy(logits, label, label_smoothing=0.1)
    if not torch.isfinite(loss):
        raise BadBatch(f"loss is {loss.item()}")
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss.item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=1000)
    ap.add_argument("--batch-size", type=int, default=16)
    ap.add_argument("--species", type=int, default=120)
    ap.add_argument("--lr", type=float, default=3e-4)
    args = ap.parse_args()

    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    model = SongNet(args.species).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    data = Recordings(args.batch_size, args.species)

    skipped = []
    avg = None
    for step in range(args.steps):
        mel, label = data.next()
        mel, label = mel.to(device), label.to(device)
        try:
            loss = train_step(model, optimizer, mel, label)
        except BadBatch as err:
            skipped.append((step, err))  # HERE
            continue
        avg = loss if avg is None else 0.95 * avg + 0.05 * loss
        if step % 10 == 0:
            print(f"step {step:4d}  loss {avg:.3f}  skipped {len(skipped)}", flush=True)

    print("skipped batches:")
    for step, err in skipped:
        print(f"  {step}: {err}")


if __name__ == "__main__":
    main()
