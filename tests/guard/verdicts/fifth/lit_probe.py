import lightning as L
import timm
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset
from torchmetrics.classification import MulticlassAccuracy


class Textures(Dataset):
    def __init__(self, n=400, classes=12):
        self.n, self.classes = n, classes

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        y = i % self.classes
        g = torch.Generator().manual_seed(i)
        yy, xx = torch.meshgrid(torch.arange(224.0), torch.arange(224.0), indexing="ij")
        wave = torch.sin(xx * (y + 1) / 20 + torch.rand(1, generator=g) * 6) * torch.cos(yy * (y + 1) / 35)
        return wave.expand(3, -1, -1) + 0.1 * torch.randn(3, 224, 224, generator=g), y


class LinearProbe(L.LightningModule):
    def __init__(self, arch="vit_large_patch16_224", classes=12, lr=1e-3):
        super().__init__()
        self.backbone = timm.create_model(arch, pretrained=False, num_classes=0)
        self.backbone.eval()  # HERE
        self.head = nn.Linear(self.backbone.num_features, classes)
        self.acc = MulticlassAccuracy(num_classes=classes)
        self.lr = lr

    def forward(self, x):
        return self.head(self.backbone(x))

    def training_step(self, batch, batch_idx):
        x, y = batch
        logits = self(x)
        loss = nn.functional.cross_entropy(logits, y)
        self.acc(logits, y)
        self.log("train_loss", loss, prog_bar=True)
        self.log("train_acc", self.acc, on_step=False, on_epoch=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.lr, weight_decay=0.01)  # HERE


if __name__ == "__main__":
    L.seed_everything(1)
    probe = LinearProbe()
    trainer = L.Trainer(max_epochs=2, accelerator="gpu", devices=1, logger=False,
                        enable_checkpointing=False, log_every_n_steps=10)
    trainer.fit(probe, DataLoader(Textures(), batch_size=2, shuffle=True))
