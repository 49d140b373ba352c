"""Low-latency scorer: one captured CUDA graph for each batch size we expect."""
import time

import torch
import torch.nn as nn

MAX_BATCH = 8192
STEP = 256


class Tower(nn.Module):
    def __init__(self, dim=4096, depth=5):
        super().__init__()
        self.inp = nn.Linear(512, dim)
        self.mid = nn.ModuleList([nn.Linear(dim, dim) for _ in range(depth)])
        self.norm = nn.LayerNorm(dim)
        self.out = nn.Linear(dim, 64)

    def forward(self, x):
        x = self.inp(x)
        for m in self.mid:
            x = x + nn.functional.gelu(m(x))
        return self.out(self.norm(x))


class GraphRunner:
    def __init__(self, model, sizes):
        self.model = model
        self.sizes = sorted(sizes, reverse=True)
        self.static_in = torch.zeros(self.sizes[0], 512, device="cuda")
        self.graphs = {}
        self.static_out = {}

    def warmup(self):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                self.model(self.static_in[:STEP])
        torch.cuda.current_stream().wait_stream(side)

    def capture(self):
        self.warmup()
        for size in self.sizes:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):  # HERE
                self.static_out[size] = self.model(self.static_in[:size])
            self.graphs[size] = graph
            print(f"captured batch size {size}", flush=True)

    def __call__(self, x):
        size = min(s for s in self.sizes if s >= len(x))
        self.static_in[:len(x)].copy_(x)
        self.graphs[size].replay()
        return self.static_out[size][:len(x)]


@torch.no_grad()
def main():
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = True
    model = Tower().cuda().eval()
    runner = GraphRunner(model, range(STEP, MAX_BATCH + 1, STEP))
    runner.capture()
    lat = []
    for i in range(500):
        x = torch.randn(int(torch.randint(1, MAX_BATCH, (1,))), 512, device="cuda")
        torch.cuda.synchronize()
        t = time.perf_counter()
        runner(x)
        torch.cuda.synchronize()
        lat.append(time.perf_counter() - t)
    lat.sort()
    print(f"p50 {lat[250] * 1e3:.2f} ms  p99 {lat[495] * 1e3:.2f} ms")


if __name__ == "__main__":
    main()
