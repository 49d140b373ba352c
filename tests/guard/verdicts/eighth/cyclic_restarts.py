"""Character-level protein language model trained with warm restarts (fresh AdamW per cycle)."""
import argparse
import logging
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim.lr_scheduler import LambdaLR

logging.basicConfig(level=logging.INFO, format="%(message)s")
AMINO = 25


class ProteinLM(nn.Module):
    def __init__(self, d=1024, depth=4, heads=16, max_len=256):
        super().__init__()
        self.emb = nn.Embedding(AMINO, d)
        self.pos = nn.Parameter(0.01 * torch.randn(max_len, d))
        layer = nn.TransformerEncoderLayer(d, heads, 4 * d, dropout=0.0, batch_first=True, norm_first=True)
        self.enc = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.out = nn.Linear(d, AMINO)

    def forward(self, x):
        h = self.emb(x) + self.pos[: x.shape[1]]
        return self.out(self.enc(h))


class RestartSchedule:
    """SGDR where every cycle begins with clean optimizer moments."""

    def __init__(self, model, base_lr, cycle_len, decay=0.9):
        self.model, self.base_lr, self.cycle_len, self.decay = model, base_lr, cycle_len, decay
        self.schedules = []
        self.optimizer = None

    def restart(self):
        lr = self.base_lr * self.decay ** len(self.schedules)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=lr, weight_decay=0.05)
        cosine = LambdaLR(self.optimizer, lambda s: 0.5 * (1 + math.cos(math.pi * min(1.0, s / self.cycle_len))))
        self.schedules.append(cosine)  # HERE

    @property
    def current(self):
        return self.schedules[-1]

    def lr_trace(self):
        return [s.get_last_lr()[0] for s in self.schedules]

    def step(self):
        self.optimizer.step()
        self.current.step()


def masked_batch(batch, length, device, p=0.15):
    seq = torch.randint(1, AMINO - 1, (batch, length), device=device)
    seq[:, 1::2] = seq[:, ::2]
    mask = torch.rand(seq.shape, device=device) < p
    return seq.masked_fill(mask, AMINO - 1), seq, mask


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--cycles", type=int, default=30)
    ap.add_argument("--cycle-len", type=int, default=40)
    ap.add_argument("--batch", type=int, default=16)
    ap.add_argument("--length", type=int, default=192)
    ap.add_argument("--lr", type=float, default=2e-4)
    args = ap.parse_args()
    device = torch.device("cuda")
    with device:
        model = ProteinLM()
    n_params = sum(p.numel() for p in model.parameters())
    logging.info("model with %.1fM parameters", n_params / 1e6)

    sgdr = RestartSchedule(model, args.lr, args.cycle_len)
    for cycle in range(args.cycles):
        sgdr.restart()
        for _ in range(args.cycle_len):
            x, y, mask = masked_batch(args.batch, args.length, device)
            loss = F.cross_entropy(model(x)[mask], y[mask])
            sgdr.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            sgdr.step()
        logging.info("cycle %d: loss %.4f, final lrs %s", cycle, loss.item(),
                     " ".join(f"{v:.1e}" for v in sgdr.lr_trace()[-3:]))


if __name__ == "__main__":
    main()
