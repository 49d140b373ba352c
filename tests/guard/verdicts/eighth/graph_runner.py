"""Low-latency reranker: captures one CUDA graph per (batch, length) bucket at start-up, then serves."""
import argparse
import bisect
import logging
import random
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

logger = logging.getLogger("graph-runner")


class RerankerLayer(nn.Module):
    def __init__(self, d_model, n_head):
        super().__init__()
        self.n_head = n_head
        self.ln1 = nn.LayerNorm(d_model)
        self.attn = nn.Linear(d_model, 3 * d_model)
        self.out = nn.Linear(d_model, d_model)
        self.ln2 = nn.LayerNorm(d_model)
        self.fc1 = nn.Linear(d_model, 4 * d_model)
        self.fc2 = nn.Linear(4 * d_model, d_model)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.attn(self.ln1(x)).view(b, t, 3, self.n_head, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, d)
        x = x + self.out(y)
        return x + self.fc2(F.gelu(self.fc1(self.ln2(x))))


class Reranker(nn.Module):
    def __init__(self, vocab=16000, d_model=768, n_layer=4, n_head=12):
        super().__init__()
        self.embed = nn.Embedding(vocab, d_model)
        self.layers = nn.ModuleList([RerankerLayer(d_model, n_head) for _ in range(n_layer)])
        self.score = nn.Linear(d_model, 1)

    def forward(self, ids):
        h = self.embed(ids)
        for layer in self.layers:
            h = layer(h)
        return self.score(h[:, 0]).squeeze(-1)


class CUDAGraphRunner:
    def __init__(self, model, batch_sizes, lengths, device):
        self.model, self.device = model, device
        self.batch_sizes, self.lengths = sorted(batch_sizes), sorted(lengths)
        self.graphs = {}

    @torch.no_grad()
    def capture(self, batch, length):
        static_in = torch.zeros(batch, length, dtype=torch.long, device=self.device)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                self.model(static_in)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):  # HERE
            static_out = self.model(static_in)
        self.graphs[batch, length] = (graph, static_in, static_out)  # HERE

    def warmup(self):
        for length in self.lengths:
            for batch in self.batch_sizes:
                t0 = time.perf_counter()
                self.capture(batch, length)
                logger.info("captured batch=%d length=%d in %.2fs", batch, length, time.perf_counter() - t0)

    def __call__(self, ids):
        b, t = ids.shape
        batch = self.batch_sizes[bisect.bisect_left(self.batch_sizes, b)]
        length = self.lengths[bisect.bisect_left(self.lengths, t)]
        graph, static_in, static_out = self.graphs[batch, length]
        static_in.zero_()
        static_in[:b, :t].copy_(ids)
        graph.replay()
        return static_out[:b].clone()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--batch-sizes", type=int, nargs="+", default=[4, 16, 32])
    ap.add_argument("--max-length", type=int, default=768)
    ap.add_argument("--bucket", type=int, default=64)
    ap.add_argument("--requests", type=int, default=500)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    device = torch.device("cuda")
    with torch.device(device):
        model = Reranker().eval()
    lengths = list(range(args.bucket, args.max_length + 1, args.bucket))
    runner = CUDAGraphRunner(model, args.batch_sizes, lengths, device)
    runner.warmup()
    start = time.perf_counter()
    for i in range(args.requests):
        shape = (random.randint(1, args.batch_sizes[-1]), random.randint(8, args.max_length))
        scores = runner(torch.randint(1, 16000, shape, device=device))
        if i % 50 == 0:
            logger.info("request %d top %.3f", i, scores.max().item())
    logger.info("%.1f req/s", args.requests / (time.perf_counter() - start))


if __name__ == "__main__":
    main()
