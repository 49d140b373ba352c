"""Arrival times of taxi trips: trains on the GPU, scores a year of trips in chunks."""
import argparse
import time

import torch
import torch.nn.functional as F
from torch import nn


class Trips:
    def __init__(self, count, seed):
        gen = torch.Generator().manual_seed(seed)
        self.features = torch.rand(count, 6, generator=gen)
        distance = (self.features[:, 0] - self.features[:, 2]).abs() + (self.features[:, 1] - self.features[:, 3]).abs()
        rush = 1 + 0.5 * torch.sin(6.28 * self.features[:, 4])
        self.minutes = 3 + 25 * distance * rush + torch.randn(count, generator=gen)

    def __len__(self):
        return len(self.minutes)


class EtaNet(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(6, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 1),
        )

    def forward(self, x):
        return self.net(x)


def train(model, trips, batch, steps, device):
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    gen = torch.Generator().manual_seed(7)
    for step in range(steps):
        index = torch.randint(len(trips), (batch,), generator=gen)
        eta = model(trips.features[index].to(device)).squeeze(1)
        loss = F.huber_loss(eta, trips.minutes[index].to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            print(f"step {step} huber {loss.item():.3f}", flush=True)


@torch.no_grad()
def predict(model, features, chunk, device):
    model.eval()
    return torch.cat([model(part.to(device)).cpu() for part in features.split(chunk)])


def summary(eta, minutes):
    off = (eta - minutes).abs()  # HERE
    late = (minutes > eta + 5).float().mean()
    return {"mae": off.mean().item(), "p90": off.flatten().kthvalue(int(0.9 * off.numel())).values.item(),
            "late": late.item()}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--training", type=int, default=500_000)
    parser.add_argument("--year", type=int, default=6_500_000)
    parser.add_argument("--batch", type=int, default=4096)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--chunk", type=int, default=200_000)
    args = parser.parse_args()
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = EtaNet().to(device)
    train(model, Trips(args.training, seed=1), args.batch, args.steps, device)

    year = Trips(args.year, seed=2)
    start = time.time()
    eta = predict(model, year.features, args.chunk, device)
    print(f"{len(eta)} trips predicted in {time.time() - start:.1f} s", flush=True)
    print(summary(eta, year.minutes))


if __name__ == "__main__":
    main()
