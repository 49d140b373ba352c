"""Variational autoencoder for implicit-feedback recommendation (Mult-VAE)."""
import argparse
import json
from types import SimpleNamespace

import torch
from torch import nn
from torch.nn import functional as F

DEFAULTS = dict(n_items=20000, hidden=600, latent=200, dropout=0.5, beta_cap=0.2, anneal_steps=2000)


class InteractionLog:
    """Padded item histories, as exported by the warehouse job (0 is padding)."""

    def __init__(self, n_users, n_items, max_hist, device, seed=13):
        g = torch.Generator(device=device).manual_seed(seed)
        popularity = torch.rand(n_users, max_hist, device=device, generator=g).pow(3)
        self.items = 1 + (popularity * (n_items - 1)).long()
        lengths = torch.randint(5, max_hist, (n_users, 1), device=device, generator=g)
        self.items[torch.arange(max_hist, device=device)[None] >= lengths] = 0

    def batches(self, batch_size):
        order = torch.randperm(len(self.items), device=self.items.device)
        for chunk in order.split(batch_size):
            yield self.items[chunk]


def to_multi_hot(histories, n_items):
    hot = F.one_hot(histories, n_items + 1)  # HERE
    hot = hot.sum(dim=1).clamp(max=1)
    return hot[:, 1:].float()


class MultVAE(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.drop = nn.Dropout(cfg.dropout)
        self.enc = nn.Sequential(nn.Linear(cfg.n_items, cfg.hidden), nn.Tanh(), nn.Linear(cfg.hidden, 2 * cfg.latent))
        self.dec = nn.Sequential(nn.Linear(cfg.latent, cfg.hidden), nn.Tanh(), nn.Linear(cfg.hidden, cfg.n_items))

    def forward(self, x):
        mu, logvar = self.enc(self.drop(F.normalize(x))).chunk(2, dim=1)
        z = mu + torch.randn_like(mu) * (0.5 * logvar).exp() if self.training else mu
        kl = -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum(1).mean()
        return self.dec(z), kl


@torch.no_grad()
def recall_at(model, x, k=50):
    model.eval()
    keep = torch.rand_like(x) < 0.8
    logits, _ = model(x * keep)
    logits[(x * keep) > 0] = -1e9
    top = logits.topk(k, dim=1).indices
    held = x * (~keep)
    hits = held.gather(1, top).sum(1)
    model.train()
    return (hits / held.sum(1).clamp(1, k)).mean().item()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--config", help="json file with overrides")
    p.add_argument("--epochs", type=int, default=5)
    p.add_argument("--users", type=int, default=40000)
    p.add_argument("--history", type=int, default=60)
    p.add_argument("--batch-size", type=int, default=512)
    args = p.parse_args()
    cfg = dict(DEFAULTS)
    if args.config:
        cfg.update(json.load(open(args.config)))
    cfg = SimpleNamespace(**cfg)

    data = InteractionLog(args.users, cfg.n_items, args.history, "cuda")
    model = MultVAE(cfg).cuda()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    step = 0
    for epoch in range(args.epochs):
        for hist in data.batches(args.batch_size):
            x = to_multi_hot(hist, cfg.n_items)
            logits, kl = model(x)
            beta = min(cfg.beta_cap, step / cfg.anneal_steps)
            loss = -(F.log_softmax(logits, 1) * x).sum(1).mean() + beta * kl
            opt.zero_grad()
            loss.backward()
            opt.step()
            step += 1
        print(f"epoch {epoch}: loss {loss.item():.2f}, recall@50 {recall_at(model, x):.4f}")


if __name__ == "__main__":
    main()
