"""Data-parallel autoencoder on 64 px faces, both processes on one card."""
import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

SAMPLES = 100_000


class AutoEncoder(nn.Module):
    def __init__(self, code=128):
        super().__init__()
        self.enc = nn.Sequential(
            nn.Conv2d(3, 32, 4, 2, 1), nn.ReLU(), nn.Conv2d(32, 64, 4, 2, 1), nn.ReLU(),
            nn.Flatten(), nn.Linear(64 * 16 * 16, code),
        )
        self.dec = nn.Sequential(
            nn.Linear(code, 64 * 16 * 16), nn.Unflatten(1, (64, 16, 16)),
            nn.ConvTranspose2d(64, 32, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(32, 3, 4, 2, 1),
        )

    def forward(self, x):
        return self.dec(self.enc(x))


def load_faces(device):
    raw = np.random.default_rng(6).integers(0, 256, (SAMPLES, 3, 64, 64), dtype=np.uint8)
    faces = torch.from_numpy(raw).to(device).float()  # HERE
    return faces.div_(127.5).sub_(1)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", 0)
    torch.manual_seed(0)

    faces = load_faces(device)
    print(f"rank {rank}: {len(faces)} faces ready", flush=True)
    model = DDP(AutoEncoder().to(device), device_ids=[0])
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    order = torch.randperm(SAMPLES)[rank::world]
    for step, index in enumerate(order.split(128)):
        batch = faces[index.to(device)]
        loss = (model(batch) - batch).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 50 == 0:
            print(f"step {step} l1 {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
