"""Latency of a text encoder for each batch size, eager against CUDA graphs."""
import argparse
import time

import torch
import torch.nn as nn


class Layer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(q, k, v)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, d))
        return x + self.down(nn.functional.gelu(self.up(self.n2(x))))


class Encoder(nn.Module):
    def __init__(self, dim=1024, depth=12, heads=16):
        super().__init__()
        self.layers = nn.ModuleList(Layer(dim, heads) for _ in range(depth))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x.mean(1)


class GraphRunner:
    """One captured graph per batch size, replayed on static buffers."""

    def __init__(self, model, length, dim):
        self.model, self.length, self.dim = model, length, dim
        self.graphs = {}

    def _warm_up(self, x):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                self.model(x)
        torch.cuda.current_stream().wait_stream(side)

    def capture(self, batch):
        x = torch.zeros(batch, self.length, self.dim, device="cuda")
        self._warm_up(x)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):  # HERE
            y = self.model(x)
        self.graphs[batch] = (graph, x, y)

    def __call__(self, x):
        graph, static_in, static_out = self.graphs[x.size(0)]
        static_in.copy_(x)
        graph.replay()
        return static_out.clone()


def timed(fn, x, n=10):
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(n):
        fn(x)
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / n * 1e3


@torch.no_grad()
def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--max-batch", type=int, default=32)
    ap.add_argument("--length", type=int, default=512)
    args = ap.parse_args()
    model = Encoder().cuda().eval()
    runner = GraphRunner(model, args.length, 1024)
    for batch in range(1, args.max_batch + 1):
        runner.capture(batch)
        x = torch.randn(batch, args.length, 1024, device="cuda")
        print(f"batch {batch:3d} eager {timed(model, x):.2f} ms graph {timed(runner, x):.2f} ms",
              flush=True)


if __name__ == "__main__":
    main()
