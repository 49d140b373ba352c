"""Bird-call tagging from log-mel spectrograms, Accelerate, large effective batch."""
import argparse
import logging

import torch
import torch.nn as nn
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.logging import get_logger
from torch.utils.data import DataLoader, Dataset

logger = get_logger(__name__)


class CallClips(Dataset):
    def __init__(self, n, mels, frames, species):
        self.n, self.species = n, species
        self.bank = torch.randn(64, mels, frames)
        self.tags = (torch.rand(64, species) < 0.05).float()

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return self.bank[i % 64].roll(i % 17, dims=-1), self.tags[i % 64]


class ResUnit(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.c1 = nn.Conv2d(cin, cout, 3, stride=stride, padding=1, bias=False)
        self.c2 = nn.Conv2d(cout, cout, 3, padding=1, bias=False)
        self.b1, self.b2 = nn.BatchNorm2d(cout), nn.BatchNorm2d(cout)
        self.skip = nn.Conv2d(cin, cout, 1, stride=stride, bias=False)

    def forward(self, x):
        y = F.relu(self.b1(self.c1(x)))
        return F.relu(self.b2(self.c2(y)) + self.skip(x))


class CallTagger(nn.Module):
    def __init__(self, species, width=24):
        super().__init__()
        self.stem = nn.Conv2d(1, width, 5, stride=2, padding=2)
        self.body = nn.Sequential(ResUnit(width, width, 1), ResUnit(width, 2 * width, 2),
                                  ResUnit(2 * width, 4 * width, 2))
        self.att = nn.Conv2d(4 * width, species, 1)
        self.cla = nn.Conv2d(4 * width, species, 1)

    def forward(self, spec):
        h = self.body(self.stem(spec.unsqueeze(1))).mean(2, keepdim=True)
        w = self.att(h).softmax(-1)
        return (w * self.cla(h)).sum(-1).squeeze(-1)


def train_epoch(accelerator, model, loader, optimizer, accum, epoch):
    total_loss, pending = 0.0, 0
    updates = 0
    for spec, tags in loader:
        loss = F.binary_cross_entropy_with_logits(model(spec), tags)
        total_loss = total_loss + loss / accum  # HERE
        pending += 1
        if pending == accum:
            accelerator.backward(total_loss)  # HERE
            accelerator.clip_grad_norm_(model.parameters(), 2.0)
            optimizer.step()
            optimizer.zero_grad()
            updates += 1
            logger.info(f"epoch {epoch} update {updates} loss {total_loss.item():.4f}")
            total_loss, pending = 0.0, 0


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--clips", type=int, default=20000)
    ap.add_argument("--mels", type=int, default=96)
    ap.add_argument("--frames", type=int, default=320)
    ap.add_argument("--species", type=int, default=120)
    ap.add_argument("--batch-size", type=int, default=16)
    ap.add_argument("--accum", type=int, default=64)
    ap.add_argument("--epochs", type=int, default=3)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO)
    accelerator = Accelerator()
    model = CallTagger(args.species)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loader = DataLoader(CallClips(args.clips, args.mels, args.frames, args.species),
                        batch_size=args.batch_size, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for epoch in range(args.epochs):
        train_epoch(accelerator, model, loader, optimizer, args.accum, epoch)


if __name__ == "__main__":
    main()
