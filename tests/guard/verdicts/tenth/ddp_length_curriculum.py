import os
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

# sequence-length warmup: double the context every STAGE steps
STAGE = 15
START, FINAL = 128, 8192
BATCH = 8
VOCAB = 4096


def seq_len(step):
    return min(FINAL, START * 2 ** (step // STAGE))  # HERE


class GPT(nn.Module):
    def __init__(self, d=256, heads=4, layers=6):
        super().__init__()
        self.tok = nn.Embedding(VOCAB, d)
        self.pos = nn.Embedding(FINAL, d)
        self.blocks = nn.ModuleList()
        for _ in range(layers):
            self.blocks.append(nn.ModuleDict({
                "n1": nn.LayerNorm(d), "qkv": nn.Linear(d, 3 * d), "proj": nn.Linear(d, d),
                "n2": nn.LayerNorm(d), "fc": nn.Linear(d, 4 * d), "out": nn.Linear(4 * d, d)}))
        self.heads = heads
        self.norm = nn.LayerNorm(d)

    def forward(self, ids):
        b, t = ids.shape
        x = self.tok(ids) + self.pos(torch.arange(t, device=ids.device))
        for blk in self.blocks:
            q, k, v = blk["qkv"](blk["n1"](x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
            a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + blk["proj"](a.transpose(1, 2).reshape(b, t, -1))
            x = x + blk["out"](F.gelu(blk["fc"](blk["n2"](x))))
        return self.norm(x) @ self.tok.weight.T


def get_batch(rank, step, device):
    g = torch.Generator().manual_seed(rank * 1_000_003 + step)
    t = seq_len(step)
    ids = torch.randint(0, VOCAB, (BATCH, t + 1), generator=g)
    ids[:, 1::2] = ids[:, 0:-1:2]
    ids = ids.to(device)
    return ids[:, :-1], ids[:, 1:]


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    local_rank = int(os.environ.get("LOCAL_RANK", 0))
    device = torch.device(f"cuda:{local_rank % torch.cuda.device_count()}")
    torch.cuda.set_device(device)
    torch.manual_seed(1234)

    model = DDP(GPT().to(device))
    opt = torch.optim.AdamW(model.parameters(), lr=6e-4, betas=(0.9, 0.95))
    t0 = time.time()
    for step in range(STAGE * 8):
        x, y = get_batch(rank, step, device)
        logits = model(x)
        loss = F.cross_entropy(logits.reshape(-1, VOCAB), y.reshape(-1))
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        if rank == 0 and step % 5 == 0:
            print(f"step {step:3d} len {x.size(1):5d} loss {loss.item():.3f} "
                  f"{time.time() - t0:.1f}s", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
