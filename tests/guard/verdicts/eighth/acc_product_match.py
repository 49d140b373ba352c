"""Product matching: contrastive two-view encoder with a full-catalogue duplicate evaluation."""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, Dataset


class Catalogue(Dataset):
    """Pairs of noisy attribute vectors; item 2k and 2k+1 describe the same product."""

    def __init__(self, n_products, dim, seed):
        g = torch.Generator().manual_seed(seed)
        self.base = torch.randn(n_products, dim, generator=g)

    def __len__(self):
        return len(self.base)

    def __getitem__(self, i):
        return self.base[i], i


class Encoder(nn.Module):
    def __init__(self, dim, hidden, out):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(dim, hidden), nn.LayerNorm(hidden), nn.GELU(),
                                 nn.Linear(hidden, hidden), nn.LayerNorm(hidden), nn.GELU(),
                                 nn.Linear(hidden, out))

    def forward(self, x):
        return F.normalize(self.net(x), dim=-1)


def two_views(x, noise):
    return x + noise * torch.randn_like(x), x + noise * torch.randn_like(x)


def nt_xent(a, b, t=0.07):
    logits = a @ b.t() / t
    labels = torch.arange(len(a), device=a.device)
    return 0.5 * (F.cross_entropy(logits, labels) + F.cross_entropy(logits.t(), labels))


@torch.no_grad()
def evaluate(accelerator, model, loader, noise):
    model.eval()
    left, right = [], []
    for x, _ in loader:
        a, b = two_views(x, noise)
        left.append(accelerator.gather_for_metrics(model(a)))
        right.append(accelerator.gather_for_metrics(model(b)))
    items = torch.cat([torch.cat(left), torch.cat(right)])
    n = len(items) // 2
    sim = items @ items.t()  # HERE
    sim.fill_diagonal_(-1.0)
    nearest = sim.argmax(dim=1)
    truth = torch.cat([torch.arange(n, 2 * n), torch.arange(n)]).to(nearest.device)
    model.train()
    return (nearest == truth).float().mean().item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--products", type=int, default=16000)
    ap.add_argument("--dim", type=int, default=128)
    ap.add_argument("--hidden", type=int, default=1024)
    ap.add_argument("--embed", type=int, default=128)
    ap.add_argument("--batch-size", type=int, default=256)
    ap.add_argument("--epochs", type=int, default=6)
    ap.add_argument("--eval-every", type=int, default=2)
    ap.add_argument("--noise", type=float, default=0.6)
    args = ap.parse_args()
    set_seed(1)
    accelerator = Accelerator()

    train_set = Catalogue(args.products, args.dim, seed=0)
    eval_set = Catalogue(args.products, args.dim, seed=1)
    model = Encoder(args.dim, args.hidden, args.embed)
    opt = torch.optim.AdamW(model.parameters(), lr=5e-4)
    train_loader = DataLoader(train_set, batch_size=args.batch_size, shuffle=True, drop_last=True)
    eval_loader = DataLoader(eval_set, batch_size=1000)
    model, opt, train_loader, eval_loader = accelerator.prepare(model, opt, train_loader, eval_loader)

    for epoch in range(1, args.epochs + 1):
        total = 0.0
        for x, _ in train_loader:
            a, b = two_views(x, args.noise)
            loss = nt_xent(model(a), model(b))
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            opt.zero_grad()
            total += loss.item()
        accelerator.print(f"epoch {epoch} loss {total / len(train_loader):.4f}")
        if epoch % args.eval_every == 0:
            accelerator.print(f"epoch {epoch} match@1 {evaluate(accelerator, model, eval_loader, args.noise):.4f}")


if __name__ == "__main__":
    main()
