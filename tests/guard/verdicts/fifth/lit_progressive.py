import pytorch_lightning as pl
import torch
import torch.nn.functional as F
import torchvision
from torch.utils.data import DataLoader, TensorDataset


class ProgressiveResNet(pl.LightningModule):
    """Start on thumbnails and sharpen the input as training goes on."""

    def __init__(self, start_size=64, lr=0.02):
        super().__init__()
        self.save_hyperparameters()
        self.net = torchvision.models.resnet18(weights=None, num_classes=10)
        self.size = start_size

    def on_train_epoch_start(self):
        if self.current_epoch > 0:
            self.size *= 2  # HERE
        print(f"epoch {self.current_epoch}: training at {self.size} px", flush=True)

    def training_step(self, batch, batch_idx):
        x, y = batch
        x = F.interpolate(x, size=(self.size, self.size), mode="bilinear", align_corners=False)
        if torch.rand(()) < 0.5:
            x = x.flip(-1)
        logits = self.net(x)  # HERE
        loss = F.cross_entropy(logits, y, label_smoothing=0.1)
        self.log_dict({"loss": loss, "acc": (logits.argmax(1) == y).float().mean()}, prog_bar=True)
        return loss

    def configure_optimizers(self):
        opt = torch.optim.SGD(self.parameters(), lr=self.hparams.lr, momentum=0.9, weight_decay=5e-4)
        sched = torch.optim.lr_scheduler.OneCycleLR(
            opt, max_lr=self.hparams.lr * 5, total_steps=int(self.trainer.estimated_stepping_batches))
        return {"optimizer": opt, "lr_scheduler": {"scheduler": sched, "interval": "step"}}


def toy_images(n=3200):
    g = torch.Generator().manual_seed(42)
    proto = torch.rand(10, 3, 16, 16, generator=g)
    y = torch.randint(0, 10, (n,), generator=g)
    x = F.interpolate(proto[y], size=96, mode="bicubic")
    return TensorDataset(x + 0.2 * torch.randn(x.shape, generator=g), y)


if __name__ == "__main__":
    pl.seed_everything(42)
    loader = DataLoader(toy_images(), batch_size=64, shuffle=True, drop_last=True)
    trainer = pl.Trainer(max_epochs=5, accelerator="gpu", devices=1, logger=False,
                         enable_checkpointing=False, enable_progress_bar=False)
    trainer.fit(ProgressiveResNet(), loader)
