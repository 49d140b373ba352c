"""Link prediction on a co-author graph cut into communities, one optimizer step per pass over all of them."""
import argparse

import torch
import torch.nn.functional as F
from torch import nn

try:
    from accelerate import Accelerator
except ImportError:
    Accelerator = None


class Community:
    """A part of the graph: features, directed edges with weights, and pairs to score."""

    def __init__(self, nodes, degree, dim, seed):
        gen = torch.Generator().manual_seed(seed)
        self.x = torch.randn(nodes, dim, generator=gen)
        self.src = torch.randint(nodes, (nodes * degree,), generator=gen)
        self.dst = torch.randint(nodes, (nodes * degree,), generator=gen)
        self.weight = torch.rand(nodes * degree, 1, generator=gen) / degree
        self.fake = torch.randint(nodes, (nodes,), generator=gen)

    def to(self, device):
        moved = object.__new__(Community)
        moved.__dict__ = {name: value.to(device) for name, value in self.__dict__.items()}
        return moved


class WeightedConv(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.own = nn.Linear(cin, cout)
        self.other = nn.Linear(cin, cout)
        self.gate = nn.Linear(1, 1)

    def forward(self, x, part):
        gate = torch.sigmoid(self.gate(part.weight))
        messages = self.other(x)[part.src] * gate
        received = torch.zeros_like(x[:, :1]).expand(-1, messages.shape[1]).contiguous()
        received = received.index_add(0, part.dst, messages)
        return self.own(x) + received


class Scorer(nn.Module):
    def __init__(self, dim=256):
        super().__init__()
        self.first = WeightedConv(dim, dim)
        self.second = WeightedConv(dim, dim)

    def forward(self, part):
        h = F.relu(self.first(part.x, part))
        return F.normalize(self.second(h, part), dim=-1)


def link_loss(h, part):
    count = len(part.x)
    true = (h[part.src[:count]] * h[part.dst[:count]]).sum(-1)
    false = (h[part.src[:count]] * h[part.fake]).sum(-1)
    return F.softplus(-5 * true).mean() + F.softplus(5 * false).mean()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--communities", type=int, default=24)
    parser.add_argument("--nodes", type=int, default=20_000)
    parser.add_argument("--degree", type=int, default=10)
    parser.add_argument("--dim", type=int, default=256)
    parser.add_argument("--epochs", type=int, default=20)
    args = parser.parse_args()
    torch.manual_seed(0)

    model = Scorer(args.dim)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    if Accelerator:
        accelerator = Accelerator()
        model, optimizer = accelerator.prepare(model, optimizer)
        device, backward = accelerator.device, accelerator.backward
    else:
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        model, backward = model.to(device), torch.Tensor.backward

    communities = [Community(args.nodes, args.degree, args.dim, seed) for seed in range(args.communities)]
    print(f"{len(communities)} communities of {args.nodes} authors", flush=True)
    for epoch in range(args.epochs):
        optimizer.zero_grad()
        loss = torch.zeros((), device=device)
        for community in communities:
            part = community.to(device)
            loss = loss + link_loss(model(part), part) / len(communities)  # HERE
        backward(loss)
        optimizer.step()
        print(f"epoch {epoch} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
