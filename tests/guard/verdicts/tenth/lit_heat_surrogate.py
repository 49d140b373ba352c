"""Neural surrogate of a heat-equation solver; the samples come from a NumPy solver."""
import numpy as np
import pytorch_lightning as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

POINTS = 1_000_000
BATCH = 200_000


def solve(n, seed):
    """Analytic solution on random space-time points, u = sum_k a_k e^{-k^2 t} sin(kx)."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(0, np.pi, size=n)
    t = rng.uniform(0, 1, size=n)
    u = np.zeros(n)
    for k, a in enumerate([1.0, 0.5, 0.25], start=1):
        u += a * np.exp(-k * k * t) * np.sin(k * x)
    return np.stack([x, t], axis=1), u[:, None]


class Surrogate(pl.LightningModule):
    def __init__(self, width=512, depth=5):
        super().__init__()
        dims = [2] + [width] * depth
        body = []
        for a, b in zip(dims[:-1], dims[1:]):
            body.extend([nn.Linear(a, b), nn.Tanh()])
        self.body = nn.Sequential(*body)
        self.out = nn.Linear(width, 1)
        self.history = []

    def forward(self, xt):
        return self.out(self.body(xt))

    def training_step(self, batch, batch_idx):
        xt, u = batch
        loss = ((self(xt) - u) ** 2).mean()
        self.history.append(loss.item())
        return loss

    def on_train_epoch_end(self):
        print(f"epoch {self.current_epoch}  mse {np.mean(self.history[-5:]):.3e}", flush=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=2e-3)


def main():
    pl.seed_everything(0)
    xt, u = solve(POINTS, seed=0)
    data = TensorDataset(torch.from_numpy(xt), torch.from_numpy(u))
    sampler = torch.utils.data.BatchSampler(
        torch.utils.data.RandomSampler(data), batch_size=BATCH, drop_last=True)
    loader = DataLoader(data, sampler=sampler, batch_size=None)
    model = Surrogate().double()  # HERE
    trainer = pl.Trainer(accelerator="gpu", devices=1, max_epochs=20, logger=False,
                         enable_checkpointing=False, enable_progress_bar=False,
                         use_distributed_sampler=False)
    trainer.fit(model, loader)
    print("best mse", min(model.history))


if __name__ == "__main__":
    main()
