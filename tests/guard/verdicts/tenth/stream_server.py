"""In-process inference server: requests go to a thread pool, work is spread over streams."""
import argparse
import itertools
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.nn as nn


class Encoder(nn.Module):
    def __init__(self, dim=1024, layers=6):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(dim, dim) for _ in range(layers))
        self.query = nn.Parameter(torch.randn(dim, dim) / dim ** 0.5)

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x @ self.query


class Server:
    def __init__(self, model, threads, streams):
        self.model = model
        self.streams = [torch.cuda.Stream() for _ in range(streams)]
        self.turn = itertools.count()
        self.lock = threading.Lock()
        self.pool = ThreadPoolExecutor(max_workers=threads, thread_name_prefix="infer")  # HERE
        self.done = 0

    def _next_stream(self):
        with self.lock:
            return self.streams[next(self.turn) % len(self.streams)]

    @torch.inference_mode()
    def _handle(self, request):
        with torch.cuda.stream(self._next_stream()):  # HERE
            x = request.to("cuda", non_blocking=True)
            answer = self.model(x).cpu()
        with self.lock:
            self.done += 1
        return answer

    def submit(self, request):
        return self.pool.submit(self._handle, request)

    def close(self):
        self.pool.shutdown(wait=True, cancel_futures=True)


def load_test(server, requests, wave, seed=0):
    g = torch.Generator().manual_seed(seed)
    t0 = time.time()
    for lo in range(0, requests, wave):
        futures = []
        for _ in range(wave):
            rows = int(torch.randint(1, 65, (1,), generator=g))
            futures.append(server.submit(torch.randn(rows, 1024, generator=g)))
        norms = [f.result().norm().item() for f in futures]
        if lo % (wave * 5) == 0:
            print(f"{server.done} answered, {server.done / (time.time() - t0):.0f}/s, "
                  f"mean norm {sum(norms) / len(norms):.3f}", flush=True)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--threads", type=int, default=24)
    ap.add_argument("--streams", type=int, default=16)
    ap.add_argument("--requests", type=int, default=20_000)
    ap.add_argument("--wave", type=int, default=200)
    args = ap.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(2)
    model = Encoder().cuda().eval()
    print(f"serving with {args.threads} threads on {args.streams} streams", flush=True)
    server = Server(model, args.threads, args.streams)
    try:
        load_test(server, args.requests, args.wave)
    finally:
        server.close()


if __name__ == "__main__":
    main()
