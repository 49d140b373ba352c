"""Encoder served through CUDA graphs, one graph for each length bucket."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Layer(nn.Module):
    def __init__(self, dim=1024, heads=16):
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, c)
        x = x + self.out(a)
        return x + self.down(F.gelu(self.up(self.n2(x))))


class GraphRunner:
    def __init__(self, model, batch, dim):
        self.model, self.batch, self.dim = model, batch, dim
        self.graphs = {}

    def capture(self, length):
        x = torch.zeros(self.batch, length, self.dim, device="cuda")
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self.model(x)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):  # HERE
            y = self.model(x)  # HERE
        self.graphs[length] = (graph, x, y)  # HERE

    def __call__(self, batch):
        graph, x, y = self.graphs[batch.size(1)]
        x.copy_(batch)
        graph.replay()
        return y.clone()


@torch.inference_mode()
def main():
    torch.manual_seed(0)
    model = nn.Sequential(*[Layer() for _ in range(4)]).cuda().eval()
    runner = GraphRunner(model, batch=32, dim=1024)
    for length in range(64, 1025, 64):
        runner.capture(length)
        print(f"captured bucket {length}", flush=True)
    for length in (64, 512, 1024):
        print(length, runner(torch.randn(32, length, 1024, device="cuda")).norm().item())


if __name__ == "__main__":
    main()
