"""Patch classifier, data parallel. Usage: torchrun --nproc-per-node 2 ddp_global_batch.py"""
import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class Patches(Dataset):
    def __init__(self, n):
        g = torch.Generator().manual_seed(0)
        self.x = torch.randn(64, 3, 64, 64, generator=g)
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return self.x[i % 64], i % 7


def conv(cin, cout, stride=1):
    return nn.Sequential(nn.Conv2d(cin, cout, 3, stride, 1), nn.GELU())


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--global-batch", type=int, default=384)
    p.add_argument("--epochs", type=int, default=2)
    args = p.parse_args()

    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda:0")
    torch.manual_seed(0)

    net = nn.Sequential(conv(3, 64), conv(64, 64), conv(64, 64), conv(64, 128, 2), conv(128, 128),
                        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 7)).to(device)
    model = DDP(net, device_ids=[0])
    data = Patches(4096)
    sampler = DistributedSampler(data, num_replicas=world, rank=rank, shuffle=True)
    loader = DataLoader(data, batch_size=args.global_batch, sampler=sampler, drop_last=True)  # HERE
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    if rank == 0:
        print(f"{world} ranks, global batch {args.global_batch}, {len(loader)} steps an epoch", flush=True)

    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for i, (x, y) in enumerate(loader):
            x, y = x.to(device), y.to(device)
            loss = nn.functional.cross_entropy(model(x), y)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            if rank == 0:
                print(f"epoch {epoch} step {i} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
