"""Tabular regression (house prices) with an MLP and a robust loss."""
import numpy as np
import torch
import torch.nn as nn
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from torch.utils.data import DataLoader, TensorDataset

DEVICE = "cuda"


def make_table(n=200_000, d=48, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d)).astype(np.float32)
    price = 2 * x[:, 0] + np.abs(x[:, 1]) - x[:, 2] * x[:, 3] + rng.standard_t(3, n) * 0.3
    return x, price.astype(np.float32)


class PriceNet(nn.Module):
    def __init__(self, d, width=256):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(d, width), nn.ReLU(), nn.Dropout(0.1),
            nn.Linear(width, width), nn.ReLU(),
            nn.Linear(width, 1))

    def forward(self, x):
        return self.net(x)


def log_cosh(pred, target):
    diff = pred - target  # HERE
    return (diff + nn.functional.softplus(-2 * diff) - 0.6931).mean()


def fit(model, loader, valid, epochs, lr):
    opt = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=1e-4)
    best, bad = float("inf"), 0
    for epoch in range(epochs):
        model.train()
        running = 0.0
        for x, y in loader:
            x, y = x.to(DEVICE), y.to(DEVICE)
            loss = log_cosh(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            running += loss.item()
        score = validate(model, *valid)
        print(f"epoch {epoch} train {running / len(loader):.4f} valid {score:.4f}", flush=True)
        best, bad = (score, 0) if score < best else (best, bad + 1)
        if bad > 5:
            break


@torch.no_grad()
def validate(model, x, y):
    model.eval()
    return log_cosh(model(x.to(DEVICE)), y.to(DEVICE)).item()


def main():
    torch.manual_seed(0)
    x, y = make_table()
    xt, xv, yt, yv = train_test_split(x, y, test_size=0.2, random_state=1)
    scaler = StandardScaler().fit(xt)
    xt, xv = scaler.transform(xt).astype(np.float32), scaler.transform(xv).astype(np.float32)
    train = TensorDataset(torch.from_numpy(xt), torch.from_numpy(yt))
    loader = DataLoader(train, batch_size=512, shuffle=True)
    fit(PriceNet(x.shape[1]).to(DEVICE), loader,
        (torch.from_numpy(xv), torch.from_numpy(yv)), epochs=30, lr=1e-3)


if __name__ == "__main__":
    main()
