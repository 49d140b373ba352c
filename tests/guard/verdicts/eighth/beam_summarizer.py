"""Beam-search decoding for a decoder-only summarizer with an incremental key/value cache."""
import argparse
import math
import time
from dataclasses import dataclass, field
from typing import List, Optional, Tuple

import torch
import torch.nn as nn
import torch.nn.functional as F

Cache = List[Tuple[torch.Tensor, torch.Tensor]]


class DecoderLayer(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv = nn.Linear(d, 3 * d)
        self.proj = nn.Linear(d, d)
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))

    def forward(self, x, past=None):
        b, t, d = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        if past is not None:
            k, v = torch.cat([past[0], k], dim=2), torch.cat([past[1], v], dim=2)
        o = F.scaled_dot_product_attention(q, k, v, is_causal=past is None)
        x = x + self.proj(o.transpose(1, 2).reshape(b, t, d))
        return x + self.mlp(self.ln2(x)), (k.contiguous(), v.contiguous())


class Decoder(nn.Module):
    def __init__(self, vocab=8000, d=512, layers=8, heads=8, max_len=1024):
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocab, d), nn.Embedding(max_len, d)
        self.layers = nn.ModuleList([DecoderLayer(d, heads) for _ in range(layers)])
        self.ln = nn.LayerNorm(d)
        self.head = nn.Linear(d, vocab, bias=False)

    def forward(self, ids, cache: Optional[Cache] = None):
        start = 0 if cache is None else cache[0][0].shape[2]
        x = self.tok(ids) + self.pos(torch.arange(start, start + ids.shape[1], device=ids.device))
        new_cache = []
        for i, layer in enumerate(self.layers):
            x, kv = layer(x, None if cache is None else cache[i])
            new_cache.append(kv)
        return self.head(self.ln(x[:, -1])), new_cache


@dataclass
class Hypothesis:
    token: int
    score: float
    cache: Cache = field(repr=False)
    parent: Optional["Hypothesis"] = None
    length: int = 0

    def tokens(self):
        out, node = [], self
        while node is not None:
            out.append(node.token)
            node = node.parent
        return out[::-1]


@torch.inference_mode()
def beam_search(model, prompt, beam=4, max_new=256, alpha=0.6):
    logits, cache = model(prompt)
    logp = logits.log_softmax(-1)[0]
    top = logp.topk(beam)
    live = [Hypothesis(t, s, cache) for s, t in zip(top.values.tolist(), top.indices.tolist())]
    for step in range(1, max_new):
        candidates = []
        for hyp in live:
            ids = torch.tensor([[hyp.token]], device=prompt.device)
            logits, cache = model(ids, hyp.cache)
            top = logits.log_softmax(-1)[0].topk(beam)
            for s, t in zip(top.values.tolist(), top.indices.tolist()):
                candidates.append(Hypothesis(t, hyp.score + s, cache, parent=hyp, length=step))  # HERE
        norm = ((5 + step) / 6) ** alpha
        live = sorted(candidates, key=lambda h: h.score / norm, reverse=True)[:beam]
    return live[0]


def main():
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("--documents", type=int, default=8)
    ap.add_argument("--prompt-len", type=int, default=160)
    ap.add_argument("--beam", type=int, default=4)
    ap.add_argument("--max-new", type=int, default=512)
    args = ap.parse_args()
    torch.manual_seed(1)
    with torch.device("cuda"):
        model = Decoder().eval()
    for i in range(args.documents):
        prompt = torch.randint(0, 8000, (1, args.prompt_len), device="cuda")
        t = time.time()
        best = beam_search(model, prompt, args.beam, args.max_new)
        toks = best.tokens()
        print(f"doc {i}: {len(toks)} tokens, ppl {math.exp(-best.score / len(toks)):.2f}, {time.time() - t:.1f}s")


if __name__ == "__main__":
    main()
