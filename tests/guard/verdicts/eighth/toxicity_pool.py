"""Score comment shards for toxicity with a pool of worker threads."""
import argparse
import threading
import time
from concurrent.futures import ThreadPoolExecutor, as_completed

import torch
import torch.nn as nn
import torch.nn.functional as F

_tls = threading.local()


class Block(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.h = h
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.o = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.ff1, self.ff2 = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, self.h, d // self.h).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, d)
        x = x + self.o(a)
        return x + self.ff2(F.gelu(self.ff1(self.n2(x))))


class ToxicityModel(nn.Module):
    LABELS = ("toxic", "obscene", "threat", "insult", "identity_hate", "spam")

    def __init__(self, vocab=30000, d=1024, layers=10, heads=16, max_len=256):
        super().__init__()
        self.emb = nn.Embedding(vocab, d)
        self.pos = nn.Parameter(torch.zeros(max_len, d))
        self.blocks = nn.Sequential(*[Block(d, heads) for _ in range(layers)])
        self.cls = nn.Linear(d, len(self.LABELS))

    def forward(self, ids):
        x = self.emb(ids) + self.pos[: ids.shape[1]]
        return self.cls(self.blocks(x).mean(1)).sigmoid()


def get_model(device):
    if not hasattr(_tls, "model"):
        torch.manual_seed(0)
        with torch.device(device):
            _tls.model = ToxicityModel().eval()  # HERE
    return _tls.model


@torch.inference_mode()
def score_shard(shard_id, n_comments, batch_size, device):
    model = get_model(device)
    worst, flagged = 0.0, 0
    for start in range(0, n_comments, batch_size):
        n = min(batch_size, n_comments - start)
        ids = torch.randint(0, 30000, (n, 96), device=device)
        probs = model(ids)
        flagged += int((probs.max(1).values > 0.8).sum())
        worst = max(worst, probs.max().item())
    return shard_id, flagged, worst


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--shards", type=int, default=96)
    ap.add_argument("--comments-per-shard", type=int, default=512)
    ap.add_argument("--batch-size", type=int, default=32)
    ap.add_argument("--threads", type=int, default=12)
    ap.add_argument("--device", default="cuda:0")
    args = ap.parse_args()

    t0 = time.time()
    total = 0
    with ThreadPoolExecutor(max_workers=args.threads) as pool:
        futures = [pool.submit(score_shard, s, args.comments_per_shard, args.batch_size, args.device)
                   for s in range(args.shards)]
        for fut in as_completed(futures):
            shard, flagged, worst = fut.result()
            total += flagged
            print(f"shard {shard:03d}: flagged {flagged:4d} worst {worst:.3f}", flush=True)
    print(f"{total} comments flagged in {time.time() - t0:.1f}s")


if __name__ == "__main__":
    main()
