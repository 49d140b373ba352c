"""Train a small conv classifier and summarise the activation sparsity of each conv block."""
from collections import defaultdict

import pytorch_lightning as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Tiles(Dataset):
    def __init__(self, n):
        self.n = n
        self.x = torch.randn(128, 3, 64, 64)

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return self.x[i % 128], i % 10


class SparsityReport(pl.Callback):
    def __init__(self):
        self.outputs = defaultdict(list)
        self.handles = []

    def on_fit_start(self, trainer, module):
        def watch(name):
            def hook(mod, args, out):
                self.outputs[name].append(out.detach())  # HERE
            return hook

        for name, m in module.named_modules():
            if isinstance(m, nn.ReLU):
                self.handles.append(m.register_forward_hook(watch(name)))

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        if batch_idx % 25 == 0:
            print(f"batch {batch_idx}: loss {outputs['loss'].item():.3f}", flush=True)

    def on_train_epoch_end(self, trainer, module):
        for name, outs in self.outputs.items():
            zero = sum((o == 0).float().mean().item() for o in outs) / len(outs)
            print(f"{name}: {zero:.1%} zeros")
        self.outputs.clear()


class Classifier(pl.LightningModule):
    def __init__(self):
        super().__init__()
        blocks, cin = [], 3
        for cout in (16, 32, 64):
            blocks += [nn.Conv2d(cin, cout, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
            cin = cout
        self.body = nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))

    def training_step(self, batch, idx):
        x, y = batch
        return nn.functional.cross_entropy(self.body(x), y)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05)


if __name__ == "__main__":
    trainer = pl.Trainer(max_epochs=1, accelerator="gpu", devices=1, callbacks=[SparsityReport()],
                         logger=False, enable_checkpointing=False, enable_progress_bar=False)
    trainer.fit(Classifier(), DataLoader(Tiles(64 * 400), batch_size=64))
