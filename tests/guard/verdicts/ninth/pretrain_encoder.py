"""Replaced-token detection with a 24-layer encoder, from scratch."""
import argparse
import time

import torch
import torch.nn.functional as F
from torch import nn


class Encoder(nn.Module):
    def __init__(self, vocab, dim, layers, heads, length):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.position = nn.Parameter(0.02 * torch.randn(length, dim))
        layer = nn.TransformerEncoderLayer(
            dim, heads, 4 * dim, dropout=0.0, activation="gelu", batch_first=True, norm_first=True,
        )
        self.body = nn.TransformerEncoder(layer, layers, norm=nn.LayerNorm(dim), enable_nested_tensor=False)
        self.head = nn.Linear(dim, 1)

    def forward(self, ids):
        return self.head(self.body(self.embed(ids) + self.position[:ids.shape[1]])).squeeze(-1)


class CorruptedText:
    """Arithmetic sequences in which some of the tokens were replaced."""

    def __init__(self, vocab, length, batch, rate=0.15, seed=9):
        self.vocab, self.length, self.batch, self.rate = vocab, length, batch, rate
        self.gen = torch.Generator().manual_seed(seed)

    def next(self):
        start = torch.randint(self.vocab, (self.batch, 1), generator=self.gen)
        stride = torch.randint(1, 9, (self.batch, 1), generator=self.gen)
        ids = (start + stride * torch.arange(self.length)) % self.vocab
        replaced = torch.rand(ids.shape, generator=self.gen) < self.rate
        other = torch.randint(self.vocab, ids.shape, generator=self.gen)
        return torch.where(replaced, other, ids), replaced.float()


def parameter_groups(model, decay):
    plain, decayed = [], []
    for p in model.parameters():
        (decayed if p.dim() > 1 else plain).append(p)
    return [{"params": decayed, "weight_decay": decay}, {"params": plain, "weight_decay": 0.0}]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--vocab", type=int, default=16_000)
    parser.add_argument("--dim", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--lr", type=float, default=1e-4)
    args = parser.parse_args()
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"

    model = Encoder(args.vocab, args.dim, args.layers, args.dim // 64, args.length).to(device)
    print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.0f} M parameters", flush=True)
    optimizer = torch.optim.AdamW(parameter_groups(model, 0.01), lr=args.lr, betas=(0.9, 0.98))  # HERE
    text = CorruptedText(args.vocab, args.length, args.batch)
    start = time.time()
    for step in range(args.steps):
        ids, replaced = text.next()
        loss = F.binary_cross_entropy_with_logits(model(ids.to(device)), replaced.to(device))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=False)
        optimizer.step()  # HERE
        optimizer.zero_grad(set_to_none=True)
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.3f} after {time.time() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
