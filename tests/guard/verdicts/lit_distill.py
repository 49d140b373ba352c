"""Self-distillation: a frozen copy of the starting network is the teacher."""
import copy

import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

WIDTH, DEPTH, CLASSES = 4096, 24, 10


class ResMLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in range(DEPTH)])
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x):
        for layer in self.hidden:
            x = x + F.gelu(layer(x))
        return self.head(x)


class Distiller(pl.LightningModule):
    def __init__(self, temperature=2.0):
        super().__init__()
        self.student = ResMLP()
        self.student.hidden.requires_grad_(False)
        self.temperature = temperature
        self.teacher = None

    def on_train_start(self):
        print("parameters on", self.student.head.weight.device)
        self.teacher = copy.deepcopy(self.student).eval().requires_grad_(False)  # HERE

    def training_step(self, batch, batch_idx):
        x, y = batch
        with torch.no_grad():
            soft = F.softmax(self.teacher(x) / self.temperature, dim=-1)
        logits = self.student(x)
        kd = F.kl_div(F.log_softmax(logits / self.temperature, dim=-1), soft, reduction="batchmean")
        return F.cross_entropy(logits, y) + kd

    def configure_optimizers(self):
        return torch.optim.Adam(self.student.head.parameters(), lr=1e-3)


if __name__ == "__main__":
    pl.seed_everything(12)
    data = TensorDataset(torch.randn(2048, WIDTH), torch.randint(0, CLASSES, (2048,)))
    trainer = pl.Trainer(max_epochs=1, accelerator="gpu", devices=1, logger=False, enable_checkpointing=False)
    trainer.fit(Distiller(), DataLoader(data, batch_size=64, shuffle=True))
