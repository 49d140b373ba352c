"""Small language model with ALiBi position biases, variable-length batches."""
import math
import random
from functools import lru_cache

import torch
import torch.nn as nn
import torch.nn.functional as F

VOCAB, DIM, HEADS, DEPTH = 4096, 512, 16, 6


@lru_cache(maxsize=None)  # HERE
def alibi_bias(heads, length, device):
    """(heads, length, length) additive bias incl. the causal mask."""
    slopes = torch.tensor([2 ** (-8 * (h + 1) / heads) for h in range(heads)], device=device)
    pos = torch.arange(length, device=device)
    dist = (pos[None, :] - pos[:, None]).float()
    bias = slopes[:, None, None] * dist
    return bias.masked_fill_(dist > 0, -math.inf)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.qkv, self.proj = nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, DIM)
        self.mlp = nn.Sequential(nn.Linear(DIM, 4 * DIM), nn.GELU(), nn.Linear(4 * DIM, DIM))

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        bias = alibi_bias(HEADS, t, x.device)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, DIM))
        return x + self.mlp(self.n2(x))


class LM(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, DIM)
        self.blocks = nn.ModuleList(Block() for _ in range(DEPTH))
        self.norm = nn.LayerNorm(DIM)

    def forward(self, ids):
        x = self.emb(ids)
        for blk in self.blocks:
            x = blk(x)
        return self.norm(x) @ self.emb.weight.t()


def documents(rng):
    """Lengths roughly as in the real corpus after filtering."""
    while True:
        length = int(min(1200, max(700, rng.gauss(950, 120))))
        yield torch.randint(0, VOCAB, (2, length + 1))


def main():
    torch.manual_seed(0)
    rng = random.Random(0)
    model = LM().cuda()
    opt = torch.optim.AdamW(model.parameters(), lr=3e-4)
    for step, ids in enumerate(documents(rng)):
        ids = ids.cuda()
        logits = model(ids[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        if step % 10 == 0:
            print(f"step {step} len {ids.size(1) - 1} loss {loss.item():.3f}", flush=True)
        if step == 2000:
            break


if __name__ == "__main__":
    main()
