"""Encode passage shards and keep the half precision vectors on the card for search."""
import argparse
import random
import time
from typing import NamedTuple

import torch

torch.set_num_threads(8)


class Shard(NamedTuple):
    name: str
    rows: int


def list_shards(n, lo, hi, seed=0):
    rnd = random.Random(seed)
    sizes = [lo + (hi - lo) * i // (n - 1) for i in range(n)]
    rnd.shuffle(sizes)
    return [Shard(f"shard-{i:04d}", s) for i, s in enumerate(sizes)]


class Encoder:
    def __init__(self, n_in, n_out, device):
        self.device = device
        self.weight = torch.randn(n_in, n_out, device=device) / n_in ** 0.5
        self.n_in = n_in

    @torch.no_grad()
    def __call__(self, raw):
        x = raw.to(self.device)
        h = x @ self.weight
        h.relu_()
        h /= h.norm(dim=1, keepdim=True).clamp_(min=1e-6)
        return h.cpu()


class Index:
    def __init__(self, device):
        self.device = device
        self.parts = []
        self.rows = 0

    def add(self, vectors):
        self.parts.append(vectors.half().to(self.device))  # HERE
        self.rows += len(vectors)

    @torch.no_grad()
    def search(self, q, k=5):
        best = [(q @ p.T).topk(k, dim=1).values for p in self.parts]
        return torch.cat(best, 1).topk(k, dim=1).values


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--shards", type=int, default=40)
    ap.add_argument("--min-rows", type=int, default=25_000)
    ap.add_argument("--max-rows", type=int, default=77_000)
    ap.add_argument("--dim", type=int, default=1024)
    ap.add_argument("--device", default="cuda")
    args = ap.parse_args()

    torch.manual_seed(0)
    shards = list_shards(args.shards, args.min_rows, args.max_rows)
    shards.sort(key=lambda s: s.rows)  # HERE
    pool = torch.rand(args.max_rows, 128)
    encode, index = Encoder(128, args.dim, args.device), Index(args.device)
    t0 = time.time()
    for i, shard in enumerate(shards):
        index.add(encode(pool[:shard.rows]))
        if i % 4 == 0:
            print(f"{shard.name} ({shard.rows} rows) done, {index.rows} vectors, "
                  f"{time.time() - t0:.1f}s", flush=True)
    q = torch.rand(8, args.dim, device=args.device).half()
    print("nearest", index.search(q)[:, 0].tolist())


if __name__ == "__main__":
    main()
