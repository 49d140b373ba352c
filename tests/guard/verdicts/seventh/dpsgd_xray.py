"""Differentially private training of a chest x-ray classifier (torch.func, DP-SGD)."""
import argparse
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.func import functional_call, grad_and_value, vmap


class GNBlock(nn.Sequential):
    def __init__(self, cin, cout, stride=1):
        super().__init__(nn.Conv2d(cin, cout, 3, stride, 1, bias=False),
                         nn.GroupNorm(16, cout), nn.ReLU())


class XrayNet(nn.Module):
    def __init__(self, n_labels=14, widths=(64, 128, 256, 512)):
        super().__init__()
        layers, c = [GNBlock(1, widths[0])], widths[0]
        for i, w in enumerate(widths):
            layers += [GNBlock(c, w, 1 if i == 0 else 2), GNBlock(w, w)]
            c = w
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(c, n_labels)

    def forward(self, x):
        return self.head(self.body(x).mean((-2, -1)))


class DPSGD:
    def __init__(self, model, lr, max_norm, noise_multiplier, batch_size):
        self.model = model
        self.params = {k: v.detach() for k, v in model.named_parameters()}
        self.buffers = dict(model.named_buffers())
        self.lr, self.c = lr, max_norm
        self.sigma = noise_multiplier
        self.batch_size = batch_size
        self.per_sample = vmap(grad_and_value(self._loss), in_dims=(None, 0, 0), randomness="different")

    def _loss(self, params, x, y):
        logits = functional_call(self.model, (params, self.buffers), (x[None],))
        return F.binary_cross_entropy_with_logits(logits[0], y)

    @torch.no_grad()
    def step(self, x, y):
        grads, losses = self.per_sample(self.params, x, y)  # HERE
        sq = sum(g.flatten(1).pow(2).sum(1) for g in grads.values())
        factor = (self.c / (sq.sqrt() + 1e-6)).clamp(max=1.0)
        for name, g in grads.items():
            clipped = torch.einsum("b,b...->...", factor, g)
            noise = torch.randn_like(clipped) * self.sigma * self.c
            self.params[name].sub_(self.lr / self.batch_size * (clipped + noise))
        return losses.mean(), (factor < 1).float().mean()


def rdp_epsilon(sigma, q, steps, delta):
    # crude bound, good enough for monitoring
    orders = torch.arange(2, 64).double()
    rdp = steps * q ** 2 * orders / (2 * sigma ** 2)
    return (rdp + math.log(1 / delta) / (orders - 1)).min().item()


def synth_batch(n, size, device):
    x = torch.randn(n, 1, size, size)
    y = (torch.rand(n, 14) < 0.1).float()
    x[:, :, : size // 2] += y.mean(1).view(-1, 1, 1, 1)
    return x.to(device), y.to(device)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--n-train", type=int, default=100_000)
    ap.add_argument("--lot-size", type=int, default=256)
    ap.add_argument("--image-size", type=int, default=32)
    ap.add_argument("--steps", type=int, default=2000)
    ap.add_argument("--lr", type=float, default=0.5)
    ap.add_argument("--max-norm", type=float, default=1.0)
    ap.add_argument("--sigma", type=float, default=1.1)
    ap.add_argument("--delta", type=float, default=1e-6)
    args = ap.parse_args()

    torch.manual_seed(0)
    dev = "cuda"
    model = XrayNet().to(dev)
    n_par = sum(p.numel() for p in model.parameters())
    print(f"model: {n_par / 1e6:.2f}M parameters, lot {args.lot_size}")
    trainer = DPSGD(model, args.lr, args.max_norm, args.sigma, args.lot_size)
    with torch.no_grad():
        x, y = synth_batch(512, args.image_size, dev)
        print("initial bce", F.binary_cross_entropy_with_logits(model(x), y).item())

    for step in range(1, args.steps + 1):
        x, y = synth_batch(args.lot_size, args.image_size, dev)
        loss, clipped = trainer.step(x, y)
        if step % 10 == 1:
            eps = rdp_epsilon(args.sigma, args.lot_size / args.n_train, step, args.delta)
            print(f"step {step} loss {loss.item():.4f} clipped {clipped.item():.2f} eps {eps:.2f}")


if __name__ == "__main__":
    main()
