"""Embedding server for legal contracts; ALiBi attention so any clause length works."""
import argparse
import functools
import random
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


def alibi_slopes(n_heads):
    start = 2 ** (-8 / n_heads)
    return torch.tensor([start ** (i + 1) for i in range(n_heads)])


@functools.lru_cache(maxsize=1024)  # HERE
def attention_bias(n_heads, length, device):
    pos = torch.arange(length, device=device)
    dist = (pos[None, :] - pos[:, None]).abs().float()
    return -alibi_slopes(n_heads).to(device).view(1, n_heads, 1, 1) * dist  # HERE


class Layer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm_a, self.norm_f = nn.RMSNorm(dim), nn.RMSNorm(dim)
        self.wqkv = nn.Linear(dim, 3 * dim, bias=False)
        self.wo = nn.Linear(dim, dim, bias=False)
        self.up, self.gate = nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, 3 * dim, bias=False)
        self.down = nn.Linear(3 * dim, dim, bias=False)

    def forward(self, x, bias):
        b, t, d = x.shape
        qkv = self.wqkv(self.norm_a(x)).view(b, t, 3, self.heads, d // self.heads)
        q, k, v = (z.transpose(1, 2) for z in qkv.unbind(2))
        o = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        x = x + self.wo(o.transpose(1, 2).reshape(b, t, d))
        h = self.norm_f(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class ContractEncoder(nn.Module):
    def __init__(self, vocab=32000, dim=512, depth=6, heads=16):
        super().__init__()
        self.heads = heads
        self.tok = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList(Layer(dim, heads) for _ in range(depth))
        self.norm = nn.RMSNorm(dim)

    def forward(self, ids):
        bias = attention_bias(self.heads, ids.shape[1], ids.device)
        x = self.tok(ids)
        for layer in self.layers:
            x = layer(x, bias)
        return F.normalize(self.norm(x).mean(dim=1), dim=-1)


class Server:
    def __init__(self, device):
        self.device = device
        torch.manual_seed(0)
        with torch.device(device):
            self.encoder = ContractEncoder().eval()
        self.latency = []

    @torch.inference_mode()
    def embed(self, token_ids):
        t = time.perf_counter()
        vec = self.encoder(token_ids.to(self.device)[None])[0].cpu()
        self.latency.append(time.perf_counter() - t)
        return vec


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--requests", type=int, default=2000)
    ap.add_argument("--min-len", type=int, default=200)
    ap.add_argument("--max-len", type=int, default=1600)
    ap.add_argument("--seed", type=int, default=11)
    args = ap.parse_args()
    rng = random.Random(args.seed)
    tokens = torch.randint(0, 32000, (args.max_len,))
    server = Server(torch.device("cuda", 0))
    for i in range(args.requests):
        n = rng.randint(args.min_len, args.max_len)
        vec = server.embed(tokens[:n])
        if i % 20 == 0:
            p50 = sorted(server.latency)[len(server.latency) // 2]
            print(f"{i} requests, p50 {1e3 * p50:.1f} ms, norm {vec.norm():.3f}", flush=True)


if __name__ == "__main__":
    main()
