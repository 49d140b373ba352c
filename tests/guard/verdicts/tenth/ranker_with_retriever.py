"""Train the re-ranker against a live retriever.

The retriever is this same file started with --serve: it holds the passage table and
answers nearest-passage queries over a pipe.
"""
import subprocess
import sys
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

DIM = 1024
PASSAGES = 1_100_000
DEV = "cuda"


def serve():
    table = torch.empty(PASSAGES, DIM, device=DEV)
    for part in table.split(100_000):
        part.normal_()
    print("ready", flush=True)
    for line in sys.stdin:
        seed = int(line)
        q = torch.randn(16, DIM, device=DEV, generator=torch.Generator(DEV).manual_seed(seed))
        top = (q @ table.T[:, :200_000]).topk(8, dim=1).indices
        print(" ".join(str(i) for i in top.flatten().tolist()), flush=True)


class Retriever:
    def __init__(self):
        self.proc = subprocess.Popen([sys.executable, __file__, "--serve"],  # HERE
                                     stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.proc.stdout.readline().strip() == "ready"

    def ask(self, seed):
        self.proc.stdin.write(f"{seed}\n")
        self.proc.stdin.flush()
        return np.array(self.proc.stdout.readline().split(), dtype=np.int64).reshape(16, 8)

    def close(self):
        self.proc.stdin.close()
        self.proc.wait(timeout=10)


class Ranker(nn.Module):
    def __init__(self, width=512, layers=6):
        super().__init__()
        self.emb = nn.Embedding(30000, width)
        layer = nn.TransformerEncoderLayer(width, 8, 4 * width, dropout=0.0,
                                           batch_first=True, norm_first=True)
        self.enc = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.score = nn.Linear(width, 1)

    def forward(self, tokens):
        return self.score(self.enc(self.emb(tokens)).mean(1)).squeeze(-1)


def tokens_of(passages):
    base = torch.from_numpy(passages).to(DEV).reshape(-1, 1)
    return (base * 7919 + torch.arange(96, device=DEV) * 104729) % 30000


def train(steps=200):
    retriever = Retriever()
    model = Ranker().to(DEV)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-4)
    t0 = time.time()
    for step in range(steps):
        found = retriever.ask(step)
        scores = model(tokens_of(found)).view(16, 8)
        loss = F.cross_entropy(scores, torch.zeros(16, dtype=torch.long, device=DEV))
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f} {time.time() - t0:.1f}s", flush=True)
    retriever.close()


if __name__ == "__main__":
    torch.manual_seed(0)
    serve() if "--serve" in sys.argv else train()
