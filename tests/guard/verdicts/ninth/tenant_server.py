"""Embedding service: each tenant has a small adapter of its own and a thread that answers its requests."""
import argparse
import queue
import threading
import time
from concurrent.futures import Future

import torch
from torch import nn


class Backbone(nn.Module):
    def __init__(self, dim=512, hidden=1024):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(dim, hidden), nn.GELU(), nn.Linear(hidden, dim), nn.LayerNorm(dim))

    def forward(self, x):
        return self.net(x)


class Tenant:
    """A queue of requests and the thread that works on it."""

    def __init__(self, name, backbone, rank, device, seed):
        gen = torch.Generator().manual_seed(seed)
        self.name, self.backbone, self.device = name, backbone, device
        self.down = (0.02 * torch.randn(512, rank, generator=gen)).to(device)
        self.up = (0.02 * torch.randn(rank, 512, generator=gen)).to(device)
        self.requests = queue.Queue()
        self.thread = threading.Thread(target=self.work, name=name, daemon=True)
        self.thread.start()  # HERE

    def submit(self, x):
        future = Future()
        self.requests.put((x, future))
        return future

    @torch.inference_mode()
    def embed(self, x):
        h = self.backbone(x.to(self.device))  # HERE
        return (h + h @ self.down @ self.up).cpu()

    def work(self):
        while True:
            x, future = self.requests.get()
            try:
                future.set_result(self.embed(x))
            except BaseException as problem:
                future.set_exception(problem)


class Service:
    def __init__(self, tenants, rank, device):
        backbone = Backbone().to(device).eval()
        self.tenants = [Tenant(f"tenant-{i:03d}", backbone, rank, device, i) for i in range(tenants)]

    def round(self, gen, batch):
        """One request from each tenant; returns how many rows were embedded."""
        futures = [t.submit(torch.randn(batch, 512, generator=gen)) for t in self.tenants]
        return sum(len(future.result()) for future in futures)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tenants", type=int, default=192)
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=50)
    args = parser.parse_args()
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    gen = torch.Generator().manual_seed(1)
    service = Service(args.tenants, args.rank, device)
    print(f"{args.tenants} tenants", flush=True)
    for number in range(args.rounds):
        start = time.time()
        rows = service.round(gen, args.batch)
        print(f"round {number}: {rows / (time.time() - start):.0f} rows/s", flush=True)


if __name__ == "__main__":
    main()
