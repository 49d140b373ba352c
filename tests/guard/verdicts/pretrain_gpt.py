"""Minimal GPT pre-training loop (own implementation)."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

VOCAB, DIM, HEADS, DEPTH, CONTEXT = 8192, 1024, 16, 32, 64


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.qkv = nn.Linear(DIM, 3 * DIM)
        self.proj = nn.Linear(DIM, DIM)
        self.mlp = nn.Sequential(nn.Linear(DIM, 4 * DIM), nn.GELU(), nn.Linear(4 * DIM, DIM))

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(b, t, 3, HEADS, c // HEADS).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(a.transpose(1, 2).reshape(b, t, c))
        return x + self.mlp(self.ln2(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok = nn.Embedding(VOCAB, DIM)
        self.pos = nn.Parameter(torch.zeros(CONTEXT, DIM))
        self.blocks = nn.Sequential(*[Block() for _ in range(DEPTH)])
        self.norm = nn.LayerNorm(DIM)

    def forward(self, ids, targets):
        x = self.norm(self.blocks(self.tok(ids) + self.pos))
        logits = x @ self.tok.weight.t()
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


torch.manual_seed(42)
with torch.device("cuda"):
    model = GPT()
print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.0f}M parameters")
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95))
corpus = torch.randint(0, VOCAB, (100_000,))

for it in range(100):
    starts = torch.randint(0, len(corpus) - CONTEXT - 1, (2,))
    chunk = torch.stack([corpus[s : s + CONTEXT + 1] for s in starts]).cuda()
    loss = model(chunk[:, :-1], chunk[:, 1:])
    loss.backward()
    print(f"iter {it} loss {loss.item():.3f} ppl {math.exp(min(loss.item(), 20)):.1f}", flush=True)
    optimizer.step()  # HERE
    optimizer.zero_grad(set_to_none=True)
