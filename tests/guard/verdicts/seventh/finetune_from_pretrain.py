"""Fine-tune a pretrained decoder on short instruction pairs.

    python finetune_from_pretrain.py --init /tmp/pretrain_124m.pt
"""
import argparse
import os
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F

CONFIG = dict(vocab=32000, dim=768, depth=14, heads=12, block=256)


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        d = c["dim"]
        self.h = c["heads"]
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.o = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, self.h, d // self.h).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(a.transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.n2(x))))


class Decoder(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.tok = nn.Embedding(c["vocab"], c["dim"])
        self.pos = nn.Embedding(c["block"], c["dim"])
        self.blocks = nn.ModuleList(Block(c) for _ in range(c["depth"]))
        self.norm = nn.LayerNorm(c["dim"])
        nn.init.normal_(self.tok.weight, std=0.02)

    def forward(self, idx):
        x = self.tok(idx) + self.pos.weight[: idx.size(1)]
        for b in self.blocks:
            x = b(x)
        return F.linear(self.norm(x), self.tok.weight)


def ensure_pretrained(path):
    """Write a pretraining checkpoint in the layout the pretrainer produces."""
    if os.path.exists(path):
        return
    torch.manual_seed(0)
    m = Decoder(CONFIG)
    sd = m.state_dict()
    state = {i: {"step": torch.tensor(50000.0),
                 "exp_avg": torch.zeros_like(p),
                 "exp_avg_sq": torch.full_like(p, 1e-6)}
             for i, p in enumerate(m.parameters())}
    torch.save({"config": CONFIG, "step": 50000, "model": sd,
                "ema": {k: v.clone() for k, v in sd.items()},
                "optimizer": {"state": state, "param_groups": []}}, path)


class Finetuner:
    def __init__(self, args):
        self.args = args
        self.device = torch.device("cuda", 0)
        self.ckpt = torch.load(args.init, map_location=self.device)  # HERE
        self.model = Decoder(self.ckpt["config"]).to(self.device)
        self.model.load_state_dict(self.ckpt["ema"])
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=args.lr, weight_decay=0.0)
        print(f"loaded {args.init} (pretrain step {self.ckpt['step']})")

    def batch(self):
        v = self.ckpt["config"]["vocab"]
        x = torch.randint(v, (self.args.batch_size, self.args.seq_len + 1), device=self.device)
        return x[:, :-1], x[:, 1:]

    def save(self, path):
        torch.save({"config": self.ckpt["config"], "model": self.model.state_dict(),
                    "pretrain_step": self.ckpt["step"]}, path)

    def fit(self):
        self.model.train()
        for step in range(self.args.steps):
            x, y = self.batch()
            loss = F.cross_entropy(self.model(x).flatten(0, 1), y.flatten())
            self.opt.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.opt.step()
            if step % 10 == 0:
                print(f"step {step:4d} loss {loss.item():.3f}")
        if self.args.out:
            self.save(self.args.out)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--init", default=os.path.join(tempfile.gettempdir(), "pretrain_124m.pt"))
    p.add_argument("--out", default="")
    p.add_argument("--steps", type=int, default=300)
    p.add_argument("--batch-size", type=int, default=4)
    p.add_argument("--seq-len", type=int, default=128)
    p.add_argument("--lr", type=float, default=2e-5)
    args = p.parse_args()
    ensure_pretrained(args.init)
    Finetuner(args).fit()


if __name__ == "__main__":
    main()
