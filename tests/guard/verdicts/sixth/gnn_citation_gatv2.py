"""Node classification on a citation-like graph with GATv2."""
import argparse

import torch
import torch.nn.functional as F
from torch_geometric.data import Data
from torch_geometric.nn import GATv2Conv


def citation_graph(nodes, edges, feats, classes, seed=0):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, classes, (nodes,), generator=g)
    x = torch.randn(nodes, feats, generator=g)
    x[torch.arange(nodes), y] += 2.0
    src = torch.randint(0, nodes, (edges,), generator=g)
    # popular papers get more citations
    dst = (torch.rand(edges, generator=g) ** 2 * nodes).long()
    train = torch.rand(nodes, generator=g) < 0.3
    return Data(x=x, y=y, edge_index=torch.stack([src, dst]), train_mask=train)


class GAT(torch.nn.Module):
    def __init__(self, feats, hidden, classes, heads):
        super().__init__()
        self.conv1 = GATv2Conv(feats, hidden, heads=heads)
        self.conv2 = GATv2Conv(hidden * heads, classes, heads=1, concat=False)

    def forward(self, x, edge_index):
        x = F.elu(self.conv1(x, edge_index))
        x = F.dropout(x, 0.5, self.training)
        return self.conv2(x, edge_index)


def train_step(model, data, opt):
    model.train()
    opt.zero_grad()
    out = model(data.x, data.edge_index)  # HERE
    loss = F.cross_entropy(out[data.train_mask], data.y[data.train_mask])
    loss.backward()
    opt.step()
    return loss.item()


@torch.no_grad()
def test(model, data):
    model.eval()
    pred = model(data.x, data.edge_index).argmax(-1)
    rest = ~data.train_mask
    return (pred[rest] == data.y[rest]).float().mean().item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--nodes", type=int, default=100_000)
    ap.add_argument("--edges", type=int, default=1_500_000)
    ap.add_argument("--hidden", type=int, default=64)
    ap.add_argument("--heads", type=int, default=8)
    ap.add_argument("--epochs", type=int, default=50)
    args = ap.parse_args()
    torch.manual_seed(0)
    data = citation_graph(args.nodes, args.edges, 128, 40).to("cuda")
    print(data, flush=True)
    model = GAT(128, args.hidden, 40, args.heads).to("cuda")
    opt = torch.optim.Adam(model.parameters(), lr=5e-3, weight_decay=5e-4)
    for epoch in range(args.epochs):
        loss = train_step(model, data, opt)
        print(f"epoch {epoch} loss {loss:.4f} acc {test(model, data):.4f}", flush=True)


if __name__ == "__main__":
    main()
