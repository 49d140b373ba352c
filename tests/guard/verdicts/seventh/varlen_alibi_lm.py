import argparse
import functools
import math
import random

import torch
import torch.nn as nn
import torch.nn.functional as F


def get_slopes(n_heads):
    start = 2 ** (-2 ** -(math.log2(n_heads) - 3))
    return [start * start ** i for i in range(n_heads)]


@functools.lru_cache(maxsize=None)  # HERE
def alibi_bias(n_heads, seq_len, device):
    pos = torch.arange(seq_len, device=device)
    dist = (pos[None, :] - pos[:, None]).float()
    slopes = torch.tensor(get_slopes(n_heads), device=device)
    causal = torch.full((seq_len, seq_len), float("-inf"), device=device).triu(1)
    return slopes[:, None, None] * dist + causal  # HERE


class Attention(nn.Module):
    def __init__(self, dim, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.qkv = nn.Linear(dim, dim * 3, bias=False)
        self.proj = nn.Linear(dim, dim, bias=False)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.n_heads, -1).permute(2, 0, 3, 1, 4)
        bias = alibi_bias(self.n_heads, t, str(x.device))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias[None].expand(b, -1, -1, -1))
        return self.proj(y.transpose(1, 2).reshape(b, t, d))


class Layer(nn.Module):
    def __init__(self, dim, n_heads):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = Attention(dim, n_heads)
        self.ff = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        x = x + self.attn(self.ln1(x))
        return x + self.ff(self.ln2(x))


class AlibiLM(nn.Module):
    def __init__(self, vocab, dim, depth, n_heads):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList(Layer(dim, n_heads) for _ in range(depth))
        self.norm = nn.LayerNorm(dim)
        nn.init.normal_(self.emb.weight, std=0.02)

    def forward(self, idx):
        h = self.emb(idx)
        for layer in self.layers:
            h = layer(h)
        return F.linear(self.norm(h), self.emb.weight)


class DocumentStream:
    """Documents padded to a multiple of eight, as produced by the tokenizer shards."""

    def __init__(self, vocab, batch_size, lo, hi, seed=0):
        self.vocab, self.bs = vocab, batch_size
        self.lo, self.hi = lo, hi
        self.rng = random.Random(seed)
        self.gen = torch.Generator().manual_seed(seed)

    def __iter__(self):
        while True:
            t = self.rng.randrange(self.lo, self.hi + 1, 8)
            yield torch.randint(self.vocab, (self.bs, t), generator=self.gen)


def parse():
    p = argparse.ArgumentParser("alibi language model on variable length documents")
    p.add_argument("--vocab", type=int, default=4096)
    p.add_argument("--dim", type=int, default=384)
    p.add_argument("--depth", type=int, default=4)
    p.add_argument("--heads", type=int, default=8)
    p.add_argument("--batch", type=int, default=2)
    p.add_argument("--min-len", type=int, default=256)
    p.add_argument("--max-len", type=int, default=1536)
    p.add_argument("--steps", type=int, default=5000)
    p.add_argument("--lr", type=float, default=3e-4)
    p.add_argument("--clip", type=float, default=1.0)
    return p.parse_args()


if __name__ == "__main__":
    opt = parse()
    torch.manual_seed(0)
    dev = torch.device("cuda")
    model = AlibiLM(opt.vocab, opt.dim, opt.depth, opt.heads).to(dev)
    optim = torch.optim.AdamW(model.parameters(), lr=opt.lr, weight_decay=0.1)
    print("params: %.1fM" % (sum(p.numel() for p in model.parameters()) / 1e6))
    tokens = 0
    for step, ids in enumerate(DocumentStream(opt.vocab, opt.batch, opt.min_len, opt.max_len)):
        if step >= opt.steps:
            break
        ids = ids.to(dev)
        logits = model(ids)
        loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
        optim.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), opt.clip)
        optim.step()
        tokens += ids.numel()
        if step % 20 == 0:
            print(f"step {step} len {ids.size(1)} loss {loss.item():.3f} tokens {tokens}", flush=True)
