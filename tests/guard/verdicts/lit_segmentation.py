import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchmetrics import Metric

CLASSES, SIZE = 21, 256
GPU = dict(accelerator="gpu", devices=1, logger=False, enable_checkpointing=False)


class Scenes(Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        return torch.randn(3, SIZE, SIZE), torch.randint(0, CLASSES, (SIZE, SIZE))


class MeanIoU(Metric):
    def __init__(self):
        super().__init__()
        self.add_state("preds", default=[], dist_reduce_fx=None)
        self.add_state("targets", default=[], dist_reduce_fx=None)

    def update(self, logits, target):
        self.preds.append(logits)  # HERE
        self.targets.append(target)

    def compute(self):
        p, t = torch.cat(self.preds).argmax(1), torch.cat(self.targets)
        return torch.stack([((p == c) & (t == c)).sum() / ((p == c) | (t == c)).sum() for c in range(CLASSES)]).mean()


class Segmenter(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.iou = MeanIoU()
        self.net = nn.Sequential(nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, CLASSES, 1))

    def training_step(self, batch, _):
        return F.cross_entropy(self.net(batch[0]), batch[1])

    def validation_step(self, batch, _):
        self.iou.update(self.net(batch[0]), batch[1])

    def on_validation_epoch_end(self):
        print("val IoU", self.iou.compute().item())
        self.iou.reset()

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


if __name__ == "__main__":
    pl.seed_everything(1)
    pl.Trainer(max_epochs=2, **GPU).fit(Segmenter(), DataLoader(Scenes(80), batch_size=8), DataLoader(Scenes(800), batch_size=8))
