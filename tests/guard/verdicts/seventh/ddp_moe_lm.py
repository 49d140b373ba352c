"""GShard-style mixture-of-experts language model under DDP.

    torchrun --nproc-per-node 2 ddp_moe_lm.py
"""
import argparse
import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


class MoE(nn.Module):
    def __init__(self, dim, n_experts, hidden, capacity_factor=1.25):
        super().__init__()
        self.n_experts, self.cf = n_experts, capacity_factor
        self.gate = nn.Linear(dim, n_experts, bias=False)
        self.w1 = nn.Parameter(torch.randn(n_experts, dim, hidden) * dim ** -0.5)
        self.w2 = nn.Parameter(torch.randn(n_experts, hidden, dim) * hidden ** -0.5)
        self.routing = []

    def forward(self, x):
        shape = x.shape
        x = x.reshape(-1, shape[-1])
        n = x.size(0)
        cap = int(self.cf * n / self.n_experts)
        probs = self.gate(x).softmax(-1)
        top, expert = probs.max(-1)
        onehot = F.one_hot(expert, self.n_experts).to(x.dtype)
        slot = ((onehot.cumsum(0) - 1) * onehot).sum(-1).long()
        keep = (slot < cap).to(x.dtype)
        slot = F.one_hot(slot.clamp(max=cap - 1), cap).to(x.dtype)
        dispatch = torch.einsum("ne,nc,n->nec", onehot, slot, keep)
        self.routing.append(dispatch)  # HERE
        inp = torch.einsum("nec,nd->ecd", dispatch, x)
        out = torch.bmm(F.relu(torch.bmm(inp, self.w1)), self.w2)
        y = torch.einsum("nec,ecd->nd", dispatch, out) * top[:, None]
        return y.view(shape)

    def load(self):
        frac = self.routing[-1].sum((0, 2))
        return frac / frac.sum().clamp(min=1)


class Layer(nn.Module):
    def __init__(self, dim, heads, n_experts):
        super().__init__()
        self.h = heads
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.o = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.moe = MoE(dim, n_experts, 2 * dim)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, self.h, -1).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(a.transpose(1, 2).reshape(b, t, d))
        return x + self.moe(self.n2(x))


class MoELM(nn.Module):
    def __init__(self, vocab, dim=256, depth=4, heads=4, n_experts=8):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList(Layer(dim, heads, n_experts) for _ in range(depth))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, vocab, bias=False)

    def forward(self, ids):
        h = self.emb(ids)
        for l in self.layers:
            h = l(h)
        return self.head(self.norm(h))

    def expert_load(self):
        return torch.stack([l.moe.load() for l in self.layers])


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--vocab", type=int, default=8000)
    ap.add_argument("--batch-size", type=int, default=8)
    ap.add_argument("--seq-len", type=int, default=256)
    ap.add_argument("--steps", type=int, default=1000)
    ap.add_argument("--lr", type=float, default=1e-3)
    ap.add_argument("--backend", default="gloo")
    args = ap.parse_args()

    dist.init_process_group(args.backend)
    rank = dist.get_rank()
    local = int(os.environ.get("LOCAL_RANK", 0)) % torch.cuda.device_count()
    torch.cuda.set_device(local)
    torch.manual_seed(0)
    model = DDP(MoELM(args.vocab).cuda(), device_ids=[local], broadcast_buffers=False)
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr)
    gen = torch.Generator().manual_seed(1000 + rank)
    for step in range(args.steps):
        ids = torch.randint(args.vocab, (args.batch_size, args.seq_len + 1), generator=gen).cuda()
        logits = model(ids[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        if rank == 0 and step % 10 == 0:
            load = model.module.expert_load()
            print(f"step {step} loss {loss.item():.3f} max load {load.max().item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
