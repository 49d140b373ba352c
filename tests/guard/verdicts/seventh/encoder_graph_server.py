"""Low latency sentence-embedding server: one CUDA graph per (batch, length) bucket."""
import argparse
import itertools
import logging
import random
import time
from typing import Dict, NamedTuple, Tuple

import torch
from torch import nn
from torch.nn import functional as F

LOG = logging.getLogger(__name__)


class EncoderBlock(nn.Module):
    def __init__(self, dim: int, heads: int):
        super().__init__()
        self.heads = heads
        self.attn_norm = nn.LayerNorm(dim)
        self.wqkv = nn.Linear(dim, 3 * dim)
        self.wo = nn.Linear(dim, dim)
        self.mlp_norm = nn.LayerNorm(dim)
        self.w1 = nn.Linear(dim, 4 * dim)
        self.w2 = nn.Linear(4 * dim, dim)

    def forward(self, x):
        b, t, d = x.shape
        qkv = self.wqkv(self.attn_norm(x)).view(b, t, 3, self.heads, d // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        o = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, d)
        x = x + self.wo(o)
        return x + self.w2(F.gelu(self.w1(self.mlp_norm(x))))


class SentenceEncoder(nn.Module):
    def __init__(self, vocab=30000, dim=512, depth=6, heads=8, max_len=512):
        super().__init__()
        self.tok = nn.Embedding(vocab, dim)
        self.pos = nn.Parameter(torch.randn(max_len, dim) * 0.02)
        self.blocks = nn.ModuleList([EncoderBlock(dim, heads) for _ in range(depth)])
        self.norm = nn.LayerNorm(dim)

    def forward(self, ids):
        h = self.tok(ids) + self.pos[: ids.shape[1]]
        for blk in self.blocks:
            h = blk(h)
        return F.normalize(self.norm(h).mean(1), dim=-1)


class Captured(NamedTuple):
    graph: torch.cuda.CUDAGraph
    ids: torch.Tensor
    emb: torch.Tensor


class GraphRunner:
    def __init__(self, model, batches, lengths, device):
        self.model = model
        self.device = device
        self.batches, self.lengths = sorted(batches), sorted(lengths)
        self.captured: Dict[Tuple[int, int], Captured] = {}

    def warm(self):
        for b, t in itertools.product(self.batches, self.lengths):
            t0 = time.perf_counter()
            self.captured[b, t] = self._capture(b, t)
            LOG.info("captured batch=%d len=%d in %.0f ms", b, t,
                     1e3 * (time.perf_counter() - t0))

    def _capture(self, b, t):
        ids = torch.zeros(b, t, dtype=torch.long, device=self.device)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                self.model(ids)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):  # HERE
            emb = self.model(ids)  # HERE
        return Captured(graph, ids, emb)

    def __call__(self, ids):
        n, t = ids.shape
        b = next(x for x in self.batches if x >= n)
        l = next(x for x in self.lengths if x >= t)
        c = self.captured[b, l]
        c.ids.zero_()
        c.ids[:n, :t].copy_(ids)
        c.graph.replay()
        return c.emb[:n].float().cpu()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--max-batch", type=int, default=64)
    ap.add_argument("--max-len", type=int, default=512)
    ap.add_argument("--len-step", type=int, default=32)
    ap.add_argument("--requests", type=int, default=2000)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")

    device = torch.device("cuda")
    model = SentenceEncoder(max_len=args.max_len).half().to(device).eval()
    batches = [2 ** i for i in range(args.max_batch.bit_length())]
    lengths = range(args.len_step, args.max_len + 1, args.len_step)
    with torch.inference_mode():
        runner = GraphRunner(model, batches, lengths, device)
        runner.warm()
        rng = random.Random(0)
        lat = []
        for _ in range(args.requests):
            ids = torch.randint(30000, (rng.randint(1, args.max_batch), rng.randint(4, args.max_len)))
            t0 = time.perf_counter()
            runner(ids)
            lat.append(time.perf_counter() - t0)
    lat.sort()
    LOG.info("p50 %.2f ms p99 %.2f ms", 1e3 * lat[len(lat) // 2], 1e3 * lat[int(len(lat) * .99)])


if __name__ == "__main__":
    main()
