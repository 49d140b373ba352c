"""10-fold cross-validation of a tabular transformer, with Accelerate."""
import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, Subset, TensorDataset

N_ROWS = 2560
N_COLUMNS = 24
FOLDS = 10
EPOCHS = 2
BATCH_SIZE = 64


class TabTransformer(nn.Module):
    def __init__(self, columns, dim=768, depth=10, heads=8):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, dim) * 0.02)
        self.bias = nn.Parameter(torch.zeros(columns, dim))
        self.cls = nn.Parameter(torch.zeros(1, 1, dim))
        layer = nn.TransformerEncoderLayer(
            dim, heads, dim_feedforward=4 * dim, dropout=0.1,
            activation="gelu", batch_first=True, norm_first=True,
        )
        self.encoder = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.head = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, 1))

    def forward(self, x):
        tokens = x[..., None] * self.weight + self.bias
        tokens = torch.cat([self.cls.expand(len(x), -1, -1), tokens], dim=1)
        return self.head(self.encoder(tokens)[:, 0]).squeeze(-1)


def make_table(seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(N_ROWS, N_COLUMNS)).astype(np.float32)
    y = np.tanh(x[:, 0] * x[:, 1]) + 0.3 * x[:, 2] + 0.1 * rng.normal(size=N_ROWS)
    return TensorDataset(torch.from_numpy(x), torch.from_numpy(y.astype(np.float32)))


def kfold(n, k, seed=0):
    order = np.random.default_rng(seed).permutation(n)
    parts = np.array_split(order, k)
    for i in range(k):
        train = np.concatenate([p for j, p in enumerate(parts) if j != i])
        yield train.tolist(), parts[i].tolist()


def run_fold(accelerator, table, train_ids, valid_ids):
    train_loader = DataLoader(Subset(table, train_ids), batch_size=BATCH_SIZE, shuffle=True)
    valid_loader = DataLoader(Subset(table, valid_ids), batch_size=BATCH_SIZE)
    model = TabTransformer(N_COLUMNS)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    model, optimizer, train_loader, valid_loader = accelerator.prepare(  # HERE
        model, optimizer, train_loader, valid_loader
    )

    for _ in range(EPOCHS):
        model.train()
        for x, y in train_loader:
            loss = nn.functional.mse_loss(model(x), y)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()

    model.eval()
    squared, count = 0.0, 0
    with torch.no_grad():
        for x, y in valid_loader:
            pred, target = accelerator.gather_for_metrics((model(x), y))
            squared += (pred - target).pow(2).sum().item()
            count += len(target)
    return (squared / count) ** 0.5


def main():
    set_seed(11)
    accelerator = Accelerator()
    table = make_table()
    scores = []
    for fold, (train_ids, valid_ids) in enumerate(kfold(N_ROWS, FOLDS)):
        score = run_fold(accelerator, table, train_ids, valid_ids)
        scores.append(score)
        accelerator.print(f"fold {fold}: rmse {score:.4f}", flush=True)
    accelerator.print(f"rmse {np.mean(scores):.4f} +- {np.std(scores):.4f}")


if __name__ == "__main__":
    main()
