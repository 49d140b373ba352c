"""Node classification on a transaction graph with GAT, full graph in each step."""
import torch
import torch.nn.functional as F
from torch_geometric.data import Data
from torch_geometric.nn import GATConv


def transaction_graph(nodes=200_000, edges=4_000_000, features=128):
    gen = torch.Generator().manual_seed(10)
    edge_index = torch.randint(0, nodes, (2, edges), generator=gen)
    x = torch.randn(nodes, features, generator=gen)
    y = (torch.rand(nodes, generator=gen) < 0.05).long()
    train_mask = torch.rand(nodes, generator=gen) < 0.3
    return Data(x=x, edge_index=edge_index, y=y, train_mask=train_mask)


class FraudGAT(torch.nn.Module):
    def __init__(self, features, hidden=64, heads=8):
        super().__init__()
        self.conv1 = GATConv(features, hidden, heads=heads, dropout=0.2)
        self.conv2 = GATConv(hidden * heads, 2, heads=1, concat=False, dropout=0.2)

    def forward(self, x, edge_index):
        x = F.dropout(x, 0.2, training=self.training)
        x = F.elu(self.conv1(x, edge_index))  # HERE
        return self.conv2(x, edge_index)


def main():
    torch.manual_seed(0)
    device = torch.device("cuda")
    data = transaction_graph()
    print(data, flush=True)
    data = data.to(device)
    model = FraudGAT(data.num_features).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3, weight_decay=5e-4)

    for epoch in range(1, 101):
        model.train()
        optimizer.zero_grad()
        out = model(data.x, data.edge_index)  # HERE
        loss = F.cross_entropy(out[data.train_mask], data.y[data.train_mask])
        loss.backward()
        optimizer.step()
        print(f"epoch {epoch:03d} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
