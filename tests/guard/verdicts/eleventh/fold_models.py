"""10-fold cross-validation of a wide MLP, predictions averaged over the folds."""
import torch
from torch import nn

K = 10
N, D = 20000, 1024
device = "cuda"


def make_model():
    layers = [nn.Linear(D, 4096, device=device), nn.GELU()]
    for _ in range(5):
        layers += [nn.Linear(4096, 4096, device=device), nn.GELU()]
    return nn.Sequential(*layers, nn.Linear(4096, 1, device=device))


def folds(n, k):
    perm = torch.randperm(n, generator=torch.Generator().manual_seed(0))
    chunks = perm.chunk(k)
    for i in range(k):
        yield torch.cat([c for j, c in enumerate(chunks) if j != i]), chunks[i]


def fit(model, X, y, steps=30, bs=512):
    opt = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for step in range(steps):
        idx = torch.randint(0, len(X), (bs,), device=device)
        loss = nn.functional.mse_loss(model(X[idx]).squeeze(-1), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
    return loss.item()


def main():
    torch.manual_seed(0)
    X = torch.randn(N, D, device=device)
    y = X[:, :8].sum(1) + 0.1 * torch.randn(N, device=device)
    X_test = torch.randn(1000, D, device=device)

    members = []
    for k, (tr, va) in enumerate(folds(N, K)):
        tr, va = tr.to(device), va.to(device)
        model = make_model()
        train_loss = fit(model, X[tr], y[tr])
        with torch.no_grad():
            val = nn.functional.mse_loss(model(X[va]).squeeze(-1), y[va]).item()
        print(f"fold {k}: train {train_loss:.3f} val {val:.3f}", flush=True)
        members.append(model)  # HERE

    with torch.no_grad():
        pred = torch.stack([m(X_test).squeeze(-1) for m in members]).mean(0)
    print("test mse", nn.functional.mse_loss(pred, X_test[:, :8].sum(1)).item())


if __name__ == "__main__":
    main()
