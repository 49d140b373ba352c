"""Two-process training that also estimates the gradient noise scale of every layer."""
import argparse
from functools import partial

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Residual(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm, self.fc = nn.LayerNorm(dim), nn.Linear(dim, dim)

    def forward(self, x):
        return x + torch.relu(self.fc(self.norm(x)))


class Regressor(nn.Module):
    def __init__(self, dim, depth):
        super().__init__()
        self.inp = nn.Linear(64, dim)
        self.blocks = nn.Sequential(*(Residual(dim) for _ in range(depth)))
        self.out = nn.Linear(dim, 1)

    def forward(self, x):
        return self.out(self.blocks(self.inp(x))).squeeze(-1)


class NoiseScale:
    """tr(covariance) / |mean|^2 of the local gradients, one number for each parameter."""

    def __init__(self, model):
        self.seen = {}
        self.handles = []
        for name, p in model.named_parameters():
            self.handles.append(p.register_hook(partial(self.on_gradient, name)))

    def on_gradient(self, name, grad):
        self.seen.setdefault(name, []).append(grad)  # HERE

    def report(self):
        for name, grads in self.seen.items():
            mean = sum(grads) / len(grads)
            spread = sum((g - mean).pow(2).sum() for g in grads) / (len(grads) - 1)
            yield name, (spread / mean.pow(2).sum()).item()

    def reset(self):
        self.seen.clear()


class Synthetic:
    def __init__(self, rank, batch):
        self.batch = batch
        self.gen = torch.Generator().manual_seed(40 + rank)
        self.true = torch.randn(64, generator=torch.Generator().manual_seed(1))

    def __call__(self):
        x = torch.randn(self.batch, 64, generator=self.gen)
        return x, torch.tanh(x @ self.true)


def train_epoch(model, batch_of, optimizer, steps, device, rank):
    for step in range(steps):
        x, y = batch_of()
        loss = nn.functional.mse_loss(model(x.to(device)), y.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 5 == 0:
            print(f"  step {step} loss {loss.item():.4f}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--dim", type=int, default=2048)
    parser.add_argument("--depth", type=int, default=3)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    net = Regressor(args.dim, args.depth).to(device)
    model = DDP(net, device_ids=[0] if device.type == "cuda" else None)
    noise = NoiseScale(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    for epoch in range(args.epochs):
        if rank == 0:
            print(f"epoch {epoch}", flush=True)
        train_epoch(model, Synthetic(rank, args.batch), optimizer, args.steps, device, rank)
        if rank == 0:
            for name, scale in noise.report():
                print(f"  {name}: noise scale {scale:.2f}", flush=True)
        noise.reset()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
