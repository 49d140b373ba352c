"""Event-log language model with a sequence-length ramp, DistributedDataParallel.

torchrun --nproc_per_node 2 ddp_length_ramp.py
"""
import argparse
import math
import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


class SelfAttention(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)

    def forward(self, x, mask):
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        att = q @ k.transpose(-2, -1) / math.sqrt(d // self.heads)  # HERE
        att = att.masked_fill(mask, float("-inf")).softmax(dim=-1)  # HERE
        return self.proj((att @ v).transpose(1, 2).reshape(b, t, d))


class EventLM(nn.Module):
    def __init__(self, vocab, d, layers, heads, max_len):
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocab, d), nn.Embedding(max_len, d)
        self.attn = nn.ModuleList([SelfAttention(d, heads) for _ in range(layers)])
        self.mlp = nn.ModuleList([nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))
                                  for _ in range(layers)])
        self.n1 = nn.ModuleList([nn.LayerNorm(d) for _ in range(layers)])
        self.n2 = nn.ModuleList([nn.LayerNorm(d) for _ in range(layers)])
        self.head = nn.Linear(d, vocab)

    def forward(self, ids):
        t = ids.shape[1]
        mask = torch.ones(t, t, dtype=torch.bool, device=ids.device).triu(1)
        x = self.tok(ids) + self.pos.weight[:t]
        for n1, attn, n2, mlp in zip(self.n1, self.attn, self.n2, self.mlp):
            x = x + attn(n1(x), mask)
            x = x + mlp(n2(x))
        return self.head(x)


class LengthRamp:
    def __init__(self, start, stop, steps_per_stage):
        self.start, self.stop, self.steps_per_stage = start, stop, steps_per_stage

    def __call__(self, step):
        return min(self.stop, self.start * 2 ** (step // self.steps_per_stage))  # HERE


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=400)
    ap.add_argument("--batch-size", type=int, default=4)
    ap.add_argument("--start-len", type=int, default=256)
    ap.add_argument("--max-len", type=int, default=4096)
    ap.add_argument("--stage", type=int, default=25)
    ap.add_argument("--vocab", type=int, default=2000)
    args = ap.parse_args()

    dist.init_process_group("gloo")
    rank, local = dist.get_rank(), int(os.environ["LOCAL_RANK"])
    device = torch.device("cuda", local % torch.cuda.device_count())
    torch.cuda.set_device(device)
    torch.manual_seed(0)
    model = DDP(EventLM(args.vocab, 256, 4, 8, args.max_len).to(device), device_ids=[device.index])
    opt = torch.optim.AdamW(model.parameters(), lr=3e-4)
    ramp = LengthRamp(args.start_len, args.max_len, args.stage)
    gen = torch.Generator(device=device).manual_seed(rank)

    for step in range(args.steps):
        length = ramp(step)
        ids = torch.randint(0, args.vocab, (args.batch_size, length + 1), device=device, generator=gen)
        ids[:, 1::2] = ids[:, :-1:2][:, : ids[:, 1::2].shape[1]]
        logits = model(ids[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        if rank == 0 and step % 5 == 0:
            print(f"step {step} len {length} loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
