"""Two-process contrastive training of a small encoder, with a retrieval score at the end of each epoch."""
import argparse

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Encoder(nn.Module):
    def __init__(self, features=128, dim=256):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(features, 512), nn.GELU(), nn.Linear(512, 512), nn.GELU(), nn.Linear(512, dim)
        )

    def forward(self, x):
        return F.normalize(self.net(x), dim=-1)


class Products:
    """Two noisy views of each product; rank r owns each world-th one."""

    def __init__(self, count, features, rank, world):
        gen = torch.Generator().manual_seed(100)
        self.base = torch.randn(count, features, generator=gen)[rank::world]
        self.gen = torch.Generator().manual_seed(rank)

    def view(self, rows):
        x = self.base[rows]
        return x + 0.3 * torch.randn(x.shape, generator=self.gen)

    def pairs(self, batch):
        rows = torch.randint(0, len(self.base), (batch,), generator=self.gen)
        return self.view(rows), self.view(rows)


def info_nce(a, b, temperature=0.07):
    logits = a @ b.t() / temperature
    return F.cross_entropy(logits, torch.arange(len(a), device=a.device))


def train_epoch(model, data, optimizer, args, device):
    model.train()
    for _ in range(args.steps):
        left, right = (x.to(device) for x in data.pairs(args.batch))
        both = model(torch.cat([left, right]))
        loss = info_nce(*both.chunk(2))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


@torch.no_grad()
def embed_all(model, data, device, chunk=4096):
    rows = torch.arange(len(data.base))
    local = torch.cat([model(data.view(r).to(device)).cpu() for r in rows.split(chunk)])
    parts = [torch.empty_like(local) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, local)
    return torch.cat(parts).to(device)


@torch.no_grad()
def recall_at_1(model, data, device):
    query = embed_all(model.module, data, device)
    gallery = embed_all(model.module, data, device)
    distance = torch.cdist(query, gallery)  # HERE
    nearest = distance.argmin(dim=1)
    return (nearest == torch.arange(len(query), device=device)).float().mean().item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--products", type=int, default=48_000)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    data = Products(args.products, 128, rank, world)
    model = DDP(Encoder().to(device), device_ids=[0] if device.type == "cuda" else None)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(args.epochs):
        loss = train_epoch(model, data, optimizer, args, device)
        if rank == 0:
            print(f"epoch {epoch} loss {loss:.4f}", flush=True)
        score = recall_at_1(model, data, device)
        if rank == 0:
            print(f"epoch {epoch} recall@1 {score:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
