"""Distil a wide teacher into a small student with DDP (gloo, both ranks on the same card)."""
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

DEVICE = torch.device("cuda:0")
EPOCHS, BATCHES, BATCH = 2, 120, 2048


def teacher_net():
    return nn.Sequential(nn.Linear(512, 4096), nn.Tanh(), nn.Linear(4096, 4096), nn.Tanh())


def student_net():
    return nn.Sequential(nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 4096))


def inputs(rank, i):
    g = torch.Generator(device=DEVICE).manual_seed(1000 * rank + i)
    return torch.randn(BATCH, 512, device=DEVICE, generator=g)


class Targets:
    """Teacher outputs, computed once for each batch."""

    def __init__(self, teacher):
        self.teacher = teacher.eval()
        self.known = {}

    @torch.no_grad()
    def get(self, i, x):
        if i not in self.known:
            self.known[i] = self.teacher(x)  # HERE
        return self.known[i]


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    targets = Targets(teacher_net().to(DEVICE))
    student = DDP(student_net().to(DEVICE), device_ids=[0])
    opt = torch.optim.Adam(student.parameters(), lr=1e-3)

    for epoch in range(EPOCHS):
        for i in range(BATCHES):
            x = inputs(rank, i)
            loss = nn.functional.mse_loss(student(x), targets.get(i, x))
            opt.zero_grad()
            loss.backward()
            opt.step()
            if rank == 0 and i % 10 == 0:
                print(f"epoch {epoch} batch {i}: {loss.item():.5f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "2")
    main()
