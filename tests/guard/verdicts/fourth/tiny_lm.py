import math
import torch
from torch import nn
from torch.nn import functional as F
from dataclasses import dataclass


@dataclass
class Config:
    vocab: int = 128_256
    d: int = 256
    heads: int = 4
    layers: int = 4
    ctx: int = 1024
    batch: int = 8


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        self.n1, self.n2 = nn.LayerNorm(c.d), nn.LayerNorm(c.d)
        self.qkv, self.proj = nn.Linear(c.d, 3 * c.d), nn.Linear(c.d, c.d)
        self.mlp = nn.Sequential(nn.Linear(c.d, 4 * c.d), nn.GELU(), nn.Linear(4 * c.d, c.d))

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, self.c.heads, -1).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(a.transpose(1, 2).reshape(b, t, d))
        return x + self.mlp(self.n2(x))


class LM(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.tok, self.pos = nn.Embedding(c.vocab, c.d), nn.Embedding(c.ctx, c.d)
        self.blocks = nn.Sequential(*[Block(c) for _ in range(c.layers)])
        self.norm = nn.LayerNorm(c.d)
        self.head = nn.Linear(c.d, c.vocab, bias=False)

    def forward(self, idx, targets):
        x = self.tok(idx) + self.pos.weight[: idx.shape[1]]
        x = self.norm(self.blocks(x))
        logits = self.head(x)  # HERE
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())  # HERE


cfg = Config()
model = LM(cfg).cuda()
print(sum(p.numel() for p in model.parameters()) / 1e6, "M parameters; uniform loss", math.log(cfg.vocab))
opt = torch.optim.AdamW(model.parameters(), lr=3e-4)
for it in range(100):
    data = torch.randint(0, cfg.vocab, (cfg.batch, cfg.ctx + 1), device="cuda")
    loss = model(data[:, :-1], data[:, 1:])
    loss.backward()
    opt.step()
    opt.zero_grad()
    print(it, loss.item())
