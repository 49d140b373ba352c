"""Two-process training of a small ALiBi transformer on sequences of random length."""
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

HEADS, DIM, VOCAB = 16, 256, 512


class AlibiAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.proj = nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, DIM)
        self.slopes = 2 ** (-8 * torch.arange(1, HEADS + 1) / HEADS).view(-1, 1, 1)
        self.bias_cache = {}

    def bias(self, length, device):
        if length not in self.bias_cache:
            pos = torch.arange(length, device=device)
            distance = (pos[None, :] - pos[:, None]).abs().float()
            self.bias_cache[length] = -self.slopes.to(device) * distance  # HERE
        return self.bias_cache[length]

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) / (DIM // HEADS) ** 0.5 + self.bias(t, x.device)
        return self.proj((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, DIM))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.attn, self.out = nn.Embedding(VOCAB, DIM), AlibiAttention(), nn.Linear(DIM, VOCAB)

    def forward(self, ids):
        x = self.embed(ids)
        return self.out(x + self.attn(x))


def main():
    dist.init_process_group("gloo")
    rank, device = dist.get_rank(), torch.device("cuda:0")
    torch.manual_seed(rank)
    model = DistributedDataParallel(Model().to(device), device_ids=[0])
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(1000):
        length = int(torch.randint(512, 1024, (1,)))
        ids = torch.randint(0, VOCAB, (1, length), device=device)
        loss = F.cross_entropy(model(ids).flatten(0, 1), ids.flatten())
        loss.backward()
        opt.step()
        opt.zero_grad()
        if rank == 0:
            print(f"step {step} length {length} loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
