"""Serve an encoder with one captured CUDA graph for each padded length."""
import random
import time

import torch
from torch import nn

BATCH = 32
BUCKETS = [64 * k for k in range(1, 17)]


class FeedForward(nn.Module):
    def __init__(self, dim=256, hidden=4096):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.up = nn.Linear(dim, hidden)
        self.down = nn.Linear(hidden, dim)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


class GraphedEncoder:
    def __init__(self, model):
        self.model = model
        self.graphs = {}

    @torch.no_grad()
    def capture(self, length):
        x = torch.zeros(BATCH, length, 256, device="cuda", dtype=torch.float16)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self.model(x)
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):  # HERE
            y = self.model(x)
        self.graphs[length] = (graph, x, y)

    def __call__(self, batch):
        length = min(b for b in BUCKETS if b >= batch.shape[1])
        graph, x, y = self.graphs[length]
        x.zero_()
        x[:, :batch.shape[1]].copy_(batch)
        graph.replay()
        return y[:, :batch.shape[1]].clone()


def main():
    torch.manual_seed(0)
    model = nn.Sequential(*[FeedForward() for _ in range(4)]).cuda().half().eval()
    encoder = GraphedEncoder(model)
    for length in sorted(BUCKETS, reverse=True):
        encoder.capture(length)
        print(f"captured length {length}", flush=True)

    rng = random.Random(0)
    t0 = time.time()
    for i in range(100):
        batch = torch.randn(BATCH, rng.randint(10, 1024), 256, device="cuda", dtype=torch.float16)
        out = encoder(batch)
    print(f"100 requests in {time.time() - t0:.2f}s, last mean {out.float().mean():.4f}")


if __name__ == "__main__":
    main()
