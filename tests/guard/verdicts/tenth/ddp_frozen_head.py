"""Train a new head on a frozen backbone restored from the pre-training checkpoint (DDP)."""
import os
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

WIDTH, BLOCKS = 1024, 30


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm = nn.LayerNorm(d)
        self.up = nn.Linear(d, 4 * d)
        self.down = nn.Linear(4 * d, d)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


class Net(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.backbone = nn.Sequential(*[Block(WIDTH) for _ in range(BLOCKS)])
        self.head = nn.Linear(WIDTH, classes)

    def forward(self, x):
        with torch.no_grad():
            x = self.backbone(x)
        return self.head(x)


def write_pretrained(path):
    """What the pre-training job leaves: weights, EMA weights and the Adam moments."""
    with torch.device("meta"):
        shapes = {k: v.shape for k, v in Net(10).backbone.state_dict().items()}
    def fill(std):
        return {k: torch.full(s, std) for k, s in shapes.items()}
    torch.save({"model": fill(0.001), "ema": fill(0.001), "step": 400_000,
                "exp_avg": fill(0.0), "exp_avg_sq": fill(1e-8)}, path)


class Session:
    def __init__(self, path, device):
        self.device = device
        self.ckpt = torch.load(path, map_location=device)  # HERE
        with torch.device(device):
            net = Net(classes=50)
        net.backbone.load_state_dict(self.ckpt["model"])
        net.backbone.requires_grad_(False)
        self.net = DDP(net)
        self.opt = torch.optim.SGD(net.head.parameters(), lr=0.1)

    def step(self, x, y):
        loss = nn.functional.cross_entropy(self.net(x), y)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss.item()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    device = torch.device("cuda", rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    torch.manual_seed(rank)
    path = os.path.join(tempfile.gettempdir(), "pretrained_backbone.pt")
    if rank == 0:
        write_pretrained(path)
        print("checkpoint written", flush=True)
    dist.barrier()
    s = Session(path, device)
    if rank == 0:
        print("restored from step", s.ckpt["step"], flush=True)
    for i in range(60):
        x = torch.randn(256, WIDTH, device=device)
        y = torch.randint(0, 50, (256,), device=device)
        loss = s.step(x, y)
        if rank == 0 and i % 10 == 0:
            print(f"step {i} loss {loss:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
