"""Keyword spotting on raw audio, with a per-layer report of dead units at the end of each epoch."""
import argparse
from collections import defaultdict

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

try:
    import lightning.pytorch as pl
except ImportError:
    pl = None


def make_audio(count, seconds, words, seed=0):
    gen = torch.Generator().manual_seed(seed)
    label = torch.randint(words, (count,), generator=gen)
    time = torch.arange(int(16000 * seconds)) / 16000
    pitch = 200 + 60 * label.float()
    wave = torch.sin(2 * torch.pi * pitch[:, None] * time) + 0.3 * torch.randn(count, len(time), generator=gen)
    return TensorDataset(wave[:, None], label)


def block(cin, cout, kernel, stride):
    return nn.Sequential(nn.Conv1d(cin, cout, kernel, stride, kernel // 2), nn.BatchNorm1d(cout), nn.ReLU())


class KeywordNet(pl.LightningModule if pl else nn.Module):
    def __init__(self, words=12, width=64, lr=1e-3):
        super().__init__()
        self.lr = lr
        self.layers = nn.Sequential(
            block(1, width, 79, 4), block(width, width, 9, 2), block(width, 2 * width, 9, 4),
            block(2 * width, 4 * width, 9, 4),
        )
        self.head = nn.Linear(4 * width, words)
        self.responses = defaultdict(list)
        for name, layer in self.layers.named_children():
            layer.register_forward_hook(self.watch(name))

    def watch(self, name):
        def hook(module, inputs, output):
            if self.training:
                self.responses[name].append(output.detach())  # HERE
        return hook

    def forward(self, wave):
        return self.head(self.layers(wave).mean(-1))

    def training_step(self, batch, batch_idx):
        wave, label = batch
        loss = F.cross_entropy(self(wave), label)
        if batch_idx % 20 == 0:
            print(f"step {batch_idx} loss {loss.item():.3f}", flush=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.lr)

    def on_train_epoch_end(self):
        for name, outputs in self.responses.items():
            fired = torch.stack([(out > 0).float().mean((0, 2)) for out in outputs]).mean(0)
            print(f"layer {name}: {(fired < 1e-3).sum().item()} dead of {len(fired)}")
        self.responses.clear()


class PlainTrainer:
    def __init__(self, max_epochs):
        self.max_epochs = max_epochs
        self.device = "cuda" if torch.cuda.is_available() else "cpu"

    def fit(self, model, loader):
        model.to(self.device).train()
        optimizer = model.configure_optimizers()
        for _ in range(self.max_epochs):
            for i, batch in enumerate(loader):
                loss = model.training_step([part.to(self.device) for part in batch], i)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            model.on_train_epoch_end()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--clips", type=int, default=6400)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=10)
    args = parser.parse_args()
    torch.manual_seed(0)
    loader = DataLoader(make_audio(args.clips, 1.0, 12), batch_size=args.batch, shuffle=True)
    if pl:
        trainer = pl.Trainer(max_epochs=args.epochs, accelerator="auto", devices=1, logger=False,
                             enable_checkpointing=False, enable_progress_bar=False)
    else:
        trainer = PlainTrainer(args.epochs)
    trainer.fit(KeywordNet(), loader)


if __name__ == "__main__":
    main()
