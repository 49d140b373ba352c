"""Serve a small conv net through CUDA graphs, one graph for every batch size."""
import torch
from torch import nn


class GraphRunner:
    def __init__(self, net, sizes, shape, device):
        self.net, self.device, self.shape = net, device, shape
        self.graphs, self.inputs, self.outputs = {}, {}, {}
        for bs in sizes:
            self.capture(bs)
            print("captured batch size", bs, flush=True)

    @torch.no_grad()
    def capture(self, bs):
        x = torch.zeros(bs, *self.shape, device=self.device)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                self.net(x)
        torch.cuda.current_stream().wait_stream(side)
        g = torch.cuda.CUDAGraph()
        with torch.cuda.graph(g):  # HERE
            y = self.net(x)
        self.graphs[bs], self.inputs[bs], self.outputs[bs] = g, x, y

    def __call__(self, batch):
        bs = min(s for s in self.graphs if s >= len(batch))
        self.inputs[bs][: len(batch)].copy_(batch)
        self.graphs[bs].replay()
        return self.outputs[bs][: len(batch)].clone()


def main():
    dev = torch.device("cuda")
    net = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(),
        nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10),
    ).to(dev).eval()
    runner = GraphRunner(net, range(256, 0, -8), (3, 128, 128), dev)
    for n in (3, 77, 130, 250):
        print(n, runner(torch.rand(n, 3, 128, 128, device=dev)).shape)


if __name__ == "__main__":
    main()
