"""DDP training of a small street-scene network, mIoU over the whole validation set."""
import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

CLASSES = 19


class Scenes(Dataset):
    def __init__(self, n, size=256, seed=0):
        self.n, self.size, self.seed = n, size, seed

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(self.seed + i)
        x = torch.rand(3, self.size, self.size, generator=g)
        y = (x.sum(0) * (CLASSES / 3.01)).long()
        return x, y


def build():
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(inplace=True),
        nn.Conv2d(32, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(inplace=True),
        nn.Conv2d(32, CLASSES, 1))


def train(model, loader, opt, rank, steps=20):
    model.train()
    for step, (x, y) in enumerate(loader):
        loss = F.cross_entropy(model(x.cuda()), y.cuda())
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        if rank == 0 and step % 5 == 0:
            print(f"train {step} {loss.item():.3f}", flush=True)
        if step + 1 == steps:
            return


def miou(scores, labels):
    pred = scores.argmax(1)
    ious = []
    for c in range(CLASSES):
        a, b = pred == c, labels == c
        ious.append(((a & b).sum() / (a | b).sum().clamp(min=1)).item())
    return sum(ious) / len(ious)


@torch.no_grad()
def validate(model, loader, rank, world):
    model.eval()
    scores, labels = [], []
    for step, (x, y) in enumerate(loader):
        probs = model.module(x.cuda()).softmax(1)
        parts = [None] * world
        dist.all_gather_object(parts, (probs, y))  # HERE
        scores += [p for p, _ in parts]  # HERE
        labels += [t for _, t in parts]
        if rank == 0 and step % 10 == 0:
            print(f"val {step}/{len(loader)}", flush=True)
    per_batch = [miou(s.cpu(), t) for s, t in zip(scores, labels)]
    return sum(per_batch) / len(per_batch)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.cuda.set_device(0)  # one card in this box
    torch.manual_seed(0)
    model = DDP(build().cuda())
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    tr, va = Scenes(800), Scenes(1600, seed=10_000)
    tl = DataLoader(tr, batch_size=4, sampler=DistributedSampler(tr), num_workers=2)
    vl = DataLoader(va, batch_size=4, sampler=DistributedSampler(va, shuffle=False), num_workers=2)
    for epoch in range(3):
        train(model, tl, opt, rank)
        score = validate(model, vl, rank, world)
        if rank == 0:
            print(f"epoch {epoch} mIoU {score:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "4")
    main()
