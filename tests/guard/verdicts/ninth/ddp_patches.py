"""Self-supervised patch features with negatives from earlier batches; start with torchrun."""
import argparse

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class PatchEncoder(nn.Module):
    def __init__(self, dim=256):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(3, 64, 8, 8), nn.GELU(), nn.Conv2d(64, dim, 2, 2), nn.GELU(), nn.Conv2d(dim, dim, 1),
        )

    def forward(self, images):
        patches = self.net(images).flatten(2).transpose(1, 2)
        return F.normalize(patches, dim=-1)


class Negatives:
    """Patch features that were seen before, to be drawn from."""

    def __init__(self, dim, device):
        self.bank = torch.zeros(0, dim, device=device)

    def draw(self, count):
        if len(self.bank) == 0:
            return None
        index = torch.randint(len(self.bank), (count,), device=self.bank.device)
        return self.bank[index]

    def extend(self, patches):
        self.bank = torch.cat([self.bank, patches.detach().flatten(0, 1)])  # HERE


def crops(batch, size, gen):
    base = torch.rand(batch, 3, size // 8, size // 8, generator=gen)
    base = F.interpolate(base, size=(size, size))
    return base, base + 0.1 * torch.randn(base.shape, generator=gen)


def info_nce(query, key, negatives, temperature=0.1):
    rows = torch.randint(query.shape[0] * query.shape[1], (1024,), device=query.device)
    query, key = query.flatten(0, 1)[rows], key.flatten(0, 1)[rows]
    logits = [(query * key).sum(-1, keepdim=True)]
    if negatives is not None:
        logits.append(query @ negatives.T)
    logits = torch.cat(logits, 1) / temperature
    return F.cross_entropy(logits, torch.zeros(len(logits), dtype=torch.long, device=logits.device))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=192)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--dim", type=int, default=256)
    parser.add_argument("--steps", type=int, default=400)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", rank % torch.cuda.device_count())
        torch.cuda.set_device(device)
    torch.manual_seed(rank)
    gen = torch.Generator().manual_seed(100 + rank)

    encoder = DDP(PatchEncoder(args.dim).to(device))
    optimizer = torch.optim.SGD(encoder.parameters(), lr=0.05, momentum=0.9)
    negatives = Negatives(args.dim, device)
    for step in range(args.steps):
        first, second = crops(args.batch, args.size, gen)
        query = encoder(first.to(device))
        with torch.no_grad():
            key = encoder.module(second.to(device))
        loss = info_nce(query, key, negatives.draw(4096))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        negatives.extend(key)
        if rank == 0 and step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
