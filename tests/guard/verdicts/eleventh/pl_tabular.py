import numpy as np
import pytorch_lightning as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

ROWS = 131072
BATCH = 65536


def load_table(seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((ROWS, 128))
    w = rng.standard_normal(128)
    y = X @ w + 0.1 * rng.standard_normal(ROWS)
    return X, y


class Regressor(pl.LightningModule):
    def __init__(self, n_in, width=2048, depth=6):
        super().__init__()
        layers = [nn.Linear(n_in, width), nn.ReLU()]
        for _ in range(depth - 1):
            layers += [nn.Linear(width, width), nn.ReLU()]
        layers.append(nn.Linear(width, 1))
        self.net = nn.Sequential(*layers)
        self.double()  # HERE

    def forward(self, x):
        return self.net(x).squeeze(-1)

    def training_step(self, batch, idx):
        x, y = batch
        loss = nn.functional.mse_loss(self(x), y)
        print(f"epoch {self.current_epoch} batch {idx}: mse {loss.item():.4f}", flush=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1e-3, momentum=0.9)


def main():
    X, y = load_table()
    print("table", X.shape, "target std", y.std().round(3))
    ds = TensorDataset(torch.from_numpy(X), torch.from_numpy(y))
    loader = DataLoader(ds, batch_size=BATCH, shuffle=False)
    trainer = pl.Trainer(max_epochs=3, accelerator="gpu", devices=1, logger=False,
                         enable_checkpointing=False, enable_progress_bar=False)
    trainer.fit(Regressor(X.shape[1]), loader)


if __name__ == "__main__":
    main()
