"""torchrun --nproc-per-node 2 ddp_faces.py   (both ranks share the one card, hence gloo)"""
import os
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def load_faces(n=60_000, size=64):
    g = torch.Generator().manual_seed(123)
    raw = torch.randint(0, 256, (n, 3, size, size), dtype=torch.uint8, generator=g)
    age = raw[:, 0, :8, :8].float().mean(dim=(1, 2)) / 2.55
    return raw, age


def make_net(w=32):
    layers, c = [], 3
    for k in (w, 2 * w, 4 * w, 4 * w):
        layers += [nn.Conv2d(c, k, 3, stride=2, padding=1), nn.GroupNorm(8, k), nn.SiLU()]
        c = k
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(c, 1))


def main():
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    torch.cuda.set_device(0)

    raw, age = load_faces()
    images = raw.float().div_(127.5).sub_(1.0).cuda()  # HERE
    data = TensorDataset(images, age.cuda())
    del raw
    sampler = DistributedSampler(data, shuffle=True)
    loader = DataLoader(data, batch_size=256, sampler=sampler, drop_last=True)

    torch.manual_seed(0)
    model = DDP(make_net().cuda(), device_ids=[0])
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(4):
        sampler.set_epoch(epoch)
        for step, (x, y) in enumerate(loader):
            flip = torch.rand(len(x), 1, 1, 1, device=x.device) < 0.5
            x = torch.where(flip, x.flip(-1), x)
            loss = nn.functional.l1_loss(model(x).squeeze(1), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            if rank == 0 and step % 20 == 0:
                print(f"epoch {epoch} step {step} mae {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
