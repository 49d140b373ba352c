import math
from argparse import ArgumentParser

import pytorch_lightning as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class GradientNoise(pl.Callback):
    """Estimates the simple gradient noise scale of McCandlish et al. over a window."""

    def __init__(self, every=1, report=200):
        self.every = every
        self.report = report
        self.snapshots = []

    def on_after_backward(self, trainer, module):
        if trainer.global_step % self.every:
            return
        grads = torch.cat([p.grad.flatten() for p in module.parameters()])
        self.snapshots.append(grads)  # HERE
        if len(self.snapshots) == self.report:
            stack = [g.norm().item() ** 2 for g in self.snapshots]
            mean = sum(stack) / len(stack)
            spread = math.sqrt(sum((s - mean) ** 2 for s in stack) / len(stack))
            print(f"|g|^2 mean {mean:.3e} spread {spread:.3e}")
            self.snapshots = []


class Progress(pl.Callback):
    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        if batch_idx % 10 == 0:
            print(f"step {trainer.global_step} loss {outputs['loss'].item():.4f}", flush=True)


class Regressor(pl.LightningModule):
    def __init__(self, n_in, width, depth, lr):
        super().__init__()
        self.save_hyperparameters()
        layers = [nn.Linear(n_in, width), nn.SiLU()]
        for _ in range(depth):
            layers += [nn.Linear(width, width), nn.SiLU()]
        layers.append(nn.Linear(width, 1))
        self.net = nn.Sequential(*layers)

    def training_step(self, batch, _):
        x, y = batch
        return nn.functional.mse_loss(self.net(x).squeeze(-1), y)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.hparams.lr, momentum=0.9)


def main(hp):
    pl.seed_everything(1)
    x = torch.randn(64 * 400, 128)
    y = (x[:, :8] ** 2).sum(1).sqrt() + 0.1 * torch.randn(len(x))
    loader = DataLoader(TensorDataset(x, y), batch_size=64, shuffle=True)
    model = Regressor(128, hp.width, hp.depth, hp.lr)
    trainer = pl.Trainer(accelerator="gpu", devices=1, max_epochs=hp.epochs, logger=False,
                         enable_checkpointing=False, enable_progress_bar=False,
                         enable_model_summary=False,
                         callbacks=[GradientNoise(), Progress()])
    trainer.fit(model, loader)


if __name__ == "__main__":
    ap = ArgumentParser()
    ap.add_argument("--width", type=int, default=2048)
    ap.add_argument("--depth", type=int, default=5)
    ap.add_argument("--lr", type=float, default=1e-3)
    ap.add_argument("--epochs", type=int, default=2)
    main(ap.parse_args())
