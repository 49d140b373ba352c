"""How deep should GraphSAGE be? Short runs with 1, 2 and 3 layers on a synthetic
co-purchase graph; neighbours are sampled on the CPU, features gathered per batch."""
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

NUM_NODES = 400_000
DEGREE = 48
FEAT = 256
HIDDEN = 256
CLASSES = 40
FANOUT = 20
BATCH = 512
STEPS = 20

device = "cuda" if torch.cuda.is_available() else "cpu"


class Graph:
    def __init__(self, seed=0):
        rng = np.random.default_rng(seed)
        # preferential attachment: squaring favours low ids
        u = rng.random((NUM_NODES, DEGREE), dtype=np.float32)
        self.nbr = torch.from_numpy((u * u * NUM_NODES).astype(np.int64).clip(0, NUM_NODES - 1))
        self.x = torch.randn(NUM_NODES, FEAT)
        self.y = torch.randint(CLASSES, (NUM_NODES,))

    def sample(self, nodes, fanout):
        pick = torch.randint(DEGREE, (len(nodes), fanout))
        return self.nbr[nodes].gather(1, pick).reshape(-1)


class SAGEConv(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.own = nn.Linear(cin, cout)
        self.neigh = nn.Linear(cin, cout, bias=False)

    def forward(self, x_self, x_nbr):
        pooled = x_nbr.view(len(x_self), -1, x_nbr.size(-1)).mean(1)
        return self.own(x_self) + self.neigh(pooled)


class SAGE(nn.Module):
    def __init__(self, layers):
        super().__init__()
        dims = [FEAT] + [HIDDEN] * layers
        self.convs = nn.ModuleList(SAGEConv(a, b) for a, b in zip(dims, dims[1:]))
        self.out = nn.Linear(HIDDEN, CLASSES)

    def forward(self, hops):
        """hops[k]: features of the nodes k steps from the seeds."""
        for conv in self.convs:
            hops = [F.relu(conv(hops[k], hops[k + 1])) for k in range(len(hops) - 1)]
        return self.out(hops[0])


def load_batch(graph, layers):
    seeds = torch.randint(NUM_NODES, (BATCH,))
    frontier = [seeds]
    for _ in range(layers):
        frontier.append(graph.sample(frontier[-1], FANOUT))  # HERE
    hops = [graph.x[ids].to(device) for ids in frontier]  # HERE
    return hops, graph.y[seeds].to(device)


def run(graph, layers):
    model = SAGE(layers).to(device)
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    t0 = time.time()
    for step in range(STEPS):
        hops, y = load_batch(graph, layers)
        loss = F.cross_entropy(model(hops), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 5 == 0:
            print(f"  [{layers} layers] step {step} loss {loss.item():.3f}", flush=True)
    return loss.item(), time.time() - t0


if __name__ == "__main__":
    torch.manual_seed(0)
    print("building graph ...", flush=True)
    graph = Graph()
    table = {}
    for layers in (1, 2, 3):
        table[layers] = run(graph, layers)
    for layers, (loss, secs) in table.items():
        print(f"{layers} layers: loss {loss:.3f} in {secs:.1f}s")
