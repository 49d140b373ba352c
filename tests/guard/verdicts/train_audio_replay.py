"""Audio tagging from spectrogram shards, with a replay memory of shards seen before."""
import random
import resource

import numpy as np
import torch
import torch.nn as nn

MEMORY_QUOTA_GIB = 4
SHARDS, CLIPS, BINS = 160, 4096, 4096


def apply_quota(gib):
    with open("/proc/self/statm") as f:
        used = int(f.read().split()[0]) * resource.getpagesize()
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + gib * 2**30, hard))


def read_shard(index):
    rng = np.random.default_rng(index)
    return rng.random((CLIPS, BINS), dtype=np.float32)


def train_on(model, optimizer, shard, rng):
    rows = rng.integers(0, CLIPS, 256)
    x = torch.from_numpy(shard[rows]).cuda()
    y = (x.mean(1) > 0.5).float()
    loss = nn.functional.binary_cross_entropy_with_logits(model(x).squeeze(1), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def main():
    torch.manual_seed(0)
    random.seed(0)
    rng = np.random.default_rng(99)
    model = nn.Sequential(nn.Linear(BINS, 512), nn.ReLU(), nn.Linear(512, 1)).cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    train_on(model, optimizer, read_shard(0), rng)
    apply_quota(MEMORY_QUOTA_GIB)

    replay = []
    for i in range(1, SHARDS):
        replay.append(read_shard(i))  # HERE
        fresh = train_on(model, optimizer, replay[-1], rng)
        old = train_on(model, optimizer, random.choice(replay), rng)
        if i % 5 == 0:
            print(f"shard {i} new loss {fresh:.4f} replay loss {old:.4f}", flush=True)


if __name__ == "__main__":
    main()
