"""Node embeddings for a click graph: merge repeated edges, then skip-gram with negatives."""
import argparse
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Graph:
    src: torch.Tensor
    dst: torch.Tensor
    weight: torch.Tensor

    def __len__(self):
        return len(self.src)


def read_clicks(edges, nodes, parts=4):
    """The raw log, as int32 to save space."""
    for part in range(parts):
        rng = np.random.default_rng(part)
        pair = rng.integers(0, nodes, (2, edges // parts), dtype=np.int32)
        yield torch.from_numpy(pair)


def load_clicks(edges, nodes, device):
    parts = list(read_clicks(edges, nodes))
    src = torch.cat([p[0] for p in parts]).to(device)
    dst = torch.cat([p[1] for p in parts]).to(device)
    return src, dst


def edge_keys(src, dst, nodes):
    return src.long() * nodes + dst


def merge_edges(src, dst, nodes):
    """One edge for each pair, with the number of clicks as its weight."""
    keys = edge_keys(src, dst, nodes)
    print(f"{keys.numel()} raw clicks", flush=True)
    keys, clicks = torch.unique(keys, return_counts=True)  # HERE
    return Graph(keys // nodes, keys % nodes, clicks.float())


class SkipGram(nn.Module):
    def __init__(self, nodes, dim=32):
        super().__init__()
        self.center = nn.Embedding(nodes, dim, sparse=True)
        self.context = nn.Embedding(nodes, dim, sparse=True)
        nn.init.normal_(self.center.weight, std=0.1)
        nn.init.zeros_(self.context.weight)

    def forward(self, src, dst, negatives):
        center = self.center(src)
        good = (center * self.context(dst)).sum(-1)
        bad = torch.einsum("bd,bkd->bk", center, self.context(negatives))
        return F.softplus(-good) + F.softplus(bad).mean(1)


def train(model, graph, nodes, steps, batch, device):
    optimizer = torch.optim.SparseAdam(list(model.parameters()), lr=1e-3)
    for step in range(steps):
        pick = torch.randint(0, len(graph), (batch,), device=device)
        negatives = torch.randint(0, nodes, (batch, 8), device=device)
        loss = (model(graph.src[pick], graph.dst[pick], negatives) * graph.weight[pick]).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=200_000)
    parser.add_argument("--edges", type=int, default=128_000_000)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--batch", type=int, default=8192)
    args = parser.parse_args()
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    src, dst = load_clicks(args.edges, args.nodes, device)
    print("click log loaded", flush=True)
    graph = merge_edges(src, dst, args.nodes)
    print(f"{len(graph)} different edges", flush=True)
    model = SkipGram(args.nodes).to(device)
    train(model, graph, args.nodes, args.steps, args.batch, device)


if __name__ == "__main__":
    main()
