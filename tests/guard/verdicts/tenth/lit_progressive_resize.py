# progressive resizing as in fast.ai: start with small crops, finish at full size
import pytorch_lightning as pl
import torch
import torch.nn.functional as F
import torchvision
from torch.utils.data import DataLoader, Dataset

SCHEDULE = [96, 128, 192, 256, 384, 512]  # HERE
BATCH = 96


class Leaves(Dataset):
    def __init__(self, n=960):
        self.labels = torch.randint(0, 20, (n,))
        self.patch = torch.rand(3, 64, 64)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        y = self.labels[i]
        return self.patch.roll(int(y), dims=-1), y


class LeafNet(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.backbone = torchvision.models.resnet18(weights=None, num_classes=20)
        self.size = SCHEDULE[0]

    def on_train_epoch_start(self):
        self.size = SCHEDULE[min(self.current_epoch, len(SCHEDULE) - 1)]
        print(f"epoch {self.current_epoch}: image size {self.size}", flush=True)

    def resize(self, x):
        return F.interpolate(x, size=(self.size, self.size), mode="bilinear",  # HERE
                             align_corners=False)

    def training_step(self, batch, batch_idx):
        x, y = batch
        logits = self.backbone(self.resize(x))
        loss = F.cross_entropy(logits, y)
        self.running = 0.9 * getattr(self, "running", loss.item()) + 0.1 * loss.item()
        return loss

    def on_train_epoch_end(self):
        print(f"   running loss {self.running:.4f}", flush=True)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)


def main():
    pl.seed_everything(2024)
    loader = DataLoader(Leaves(), batch_size=BATCH, shuffle=True, num_workers=4,
                        persistent_workers=True, drop_last=True)
    trainer = pl.Trainer(max_epochs=len(SCHEDULE), accelerator="gpu", devices=1,
                         logger=False, enable_checkpointing=False,
                         enable_progress_bar=False)
    trainer.fit(LeafNet(), loader)
    print("done")


if __name__ == "__main__":
    main()
