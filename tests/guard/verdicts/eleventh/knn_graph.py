#!/usr/bin/env python
# Builds a k-nearest-neighbour graph of point embeddings and propagates labels over it.
import torch
import torch.nn.functional as F

N_POINTS = 45_000
K = 12


def encode(n, dim=32):
    torch.manual_seed(4)
    centres = torch.randn(20, dim, device="cuda") * 3
    labels = torch.randint(0, 20, (n,), device="cuda")
    net = torch.nn.Sequential(torch.nn.Linear(dim, 128), torch.nn.Tanh(), torch.nn.Linear(128, dim)).cuda()
    with torch.no_grad():
        z = net(centres[labels] + torch.randn(n, dim, device="cuda"))
    return z, labels


def knn(z, k):
    dist = torch.cdist(z, z)  # HERE
    return dist.topk(k + 1, largest=False).indices[:, 1:]


def propagate(neighbours, labels, known, rounds=10):
    onehot = F.one_hot(labels, 20).float() * known[:, None]
    belief = onehot.clone()
    for r in range(rounds):
        belief = belief[neighbours].mean(1)
        belief = torch.where(known[:, None], onehot, belief)
        acc = (belief.argmax(1) == labels).float().mean().item()
        print(f"round {r}: accuracy {acc:.4f}", flush=True)
    return belief


def main():
    z, labels = encode(N_POINTS)
    print("encoded", tuple(z.shape), flush=True)
    known = torch.rand(N_POINTS, device="cuda") < 0.02
    nb = knn(z, K)
    print("graph", tuple(nb.shape), flush=True)
    propagate(nb, labels, known)


main()
