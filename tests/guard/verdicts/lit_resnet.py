"""ResNet-18 on 128 px images with Lightning."""
import pytorch_lightning as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchvision.models import resnet18


class ImageData(pl.LightningDataModule):
    def setup(self, stage=None):
        gen = torch.Generator().manual_seed(4)
        def make(n):
            return TensorDataset(torch.randn(n, 3, 128, 128, generator=gen), torch.randint(0, 20, (n,), generator=gen))
        self.train, self.val = make(640), make(2048)

    def train_dataloader(self):
        return DataLoader(self.train, batch_size=32, shuffle=True)

    def val_dataloader(self):
        return DataLoader(self.val, batch_size=2048)  # HERE


class Classifier(pl.LightningModule):
    def __init__(self, lr=0.01):
        super().__init__()
        self.lr = lr
        self.net = resnet18(num_classes=20)
        self.criterion = nn.CrossEntropyLoss()

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = self.criterion(self.net(x), y)
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        logits = self.net(x)  # HERE
        self.log("val_loss", self.criterion(logits, y))
        self.log("val_acc", (logits.argmax(1) == y).float().mean())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.lr, momentum=0.9)


def main():
    pl.seed_everything(0)
    trainer = pl.Trainer(
        max_epochs=3,
        accelerator="gpu",
        devices=1,
        num_sanity_val_steps=0,
        logger=False,
        enable_checkpointing=False,
    )
    trainer.fit(Classifier(), datamodule=ImageData())


if __name__ == "__main__":
    main()
