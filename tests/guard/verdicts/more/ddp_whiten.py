# Self-supervised training with a whitening (VICReg-like) term. Also gathers the global
# feature covariance of a few layers for the spectrum plots of the paper.
#
#   torchrun --nproc-per-node 2 ddp_whiten.py
import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

DIM = 2048
BATCH = 128
STEPS = 400
EPOCHS = 2


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(3, 64, 4, stride=4), nn.ReLU(),
            nn.Conv2d(64, 128, 3, stride=2, padding=1), nn.ReLU(),
            nn.AdaptiveAvgPool2d(4), nn.Flatten(),
        )
        self.fc1 = nn.Linear(2048, DIM)
        self.fc2 = nn.Linear(DIM, DIM)

    def forward(self, x):
        h0 = self.conv(x)
        h1 = F.relu(self.fc1(h0))
        h2 = self.fc2(h1)
        return h0, h1, h2


class SpectrumTracker:
    """Covariances of all ranks, reduced in the background while training goes on."""

    def __init__(self, layers):
        self.layers = layers
        self.pending = []

    @torch.no_grad()
    def add(self, features):
        for name, feat in zip(self.layers, features):
            centered = feat - feat.mean(0)
            cov = centered.T @ centered / len(feat)
            work = dist.all_reduce(cov, async_op=True)
            self.pending.append((name, work, cov))  # HERE

    def spectra(self):
        total = {name: torch.zeros(DIM, DIM) for name in self.layers}
        for name, work, cov in self.pending:
            work.wait()
            total[name] += cov.cpu()
        self.pending = []
        return {name: torch.linalg.eigvalsh(c) for name, c in total.items()}


def views(gen, device):
    x = torch.rand(BATCH, 3, 64, 64, generator=gen, device=device)
    return x + 0.1 * torch.randn_like(x), x.flip(-1) + 0.1 * torch.randn_like(x)


def vicreg(a, b):
    invariance = F.mse_loss(a, b)
    variance = sum(F.relu(1 - z.var(0).add(1e-4).sqrt()).mean() for z in (a, b))
    covariance = 0.0
    for z in (a, b):
        z = z - z.mean(0)
        c = z.T @ z / (len(z) - 1)
        covariance = covariance + (c.pow(2).sum() - c.diagonal().pow(2).sum()) / DIM
    return 25 * invariance + 25 * variance + covariance


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    torch.cuda.set_device(device)
    torch.manual_seed(0)
    model = DDP(Encoder().to(device))
    opt = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    gen = torch.Generator(device=device).manual_seed(rank)
    tracker = SpectrumTracker(["conv", "fc1", "fc2"])

    for epoch in range(EPOCHS):
        for step in range(STEPS):
            a, b = views(gen, device)
            feats = model(torch.cat([a, b]))
            za, zb = feats[-1].chunk(2)
            loss = vicreg(za, zb)
            opt.zero_grad()
            loss.backward()
            opt.step()
            tracker.add(feats)
            if rank == 0 and step % 10 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.3f}", flush=True)
        spectra = tracker.spectra()
        if rank == 0:
            for name, values in spectra.items():
                print(name, "effective rank", int((values > values.max() * 1e-3).sum()), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
