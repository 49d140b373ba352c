"""3-D U-Net for organ segmentation in CT. Trained on patches, validated on scans."""
import lightning as L
import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

PATCH = 64
SCAN = (256, 512, 512)
ORGANS = 5


class Patches(Dataset):
    def __len__(self):
        return 80

    def __getitem__(self, i):
        gen = torch.Generator().manual_seed(i)
        ct = torch.randn(1, PATCH, PATCH, PATCH, generator=gen)
        mask = (ct[0] * 2).long().clamp(0, ORGANS - 1)
        return ct, mask


class Scans(Dataset):
    """Whole scans, as they come from the scanner."""

    def __len__(self):
        return 3

    def __getitem__(self, i):
        gen = torch.Generator().manual_seed(1000 + i)
        ct = torch.randn(1, *SCAN, generator=gen)
        mask = (ct[0] * 2).to(torch.uint8).clamp(0, ORGANS - 1)
        return ct, mask


def double_conv(cin, cout):
    return nn.Sequential(
        nn.Conv3d(cin, cout, 3, padding=1), nn.InstanceNorm3d(cout), nn.LeakyReLU(0.01),
        nn.Conv3d(cout, cout, 3, padding=1), nn.InstanceNorm3d(cout), nn.LeakyReLU(0.01),
    )


class UNet3D(nn.Module):
    def __init__(self, width=16, depth=4):
        super().__init__()
        ch = [width * 2**i for i in range(depth)]
        self.down = nn.ModuleList(double_conv(a, b) for a, b in zip([1] + ch, ch))
        self.up = nn.ModuleList(nn.ConvTranspose3d(b, a, 2, stride=2) for a, b in zip(ch, ch[1:]))
        self.fuse = nn.ModuleList(double_conv(2 * a, a) for a in ch[:-1])
        self.out = nn.Conv3d(width, ORGANS, 1)

    def forward(self, x):
        skips = []
        for i, block in enumerate(self.down):
            x = block(x if i == 0 else F.max_pool3d(x, 2))
            skips.append(x)
        for i in reversed(range(len(self.up))):
            x = self.up[i](x)
            x = self.fuse[i](torch.cat([skips[i], x], dim=1))
        return self.out(x)


class Segmenter(L.LightningModule):
    def __init__(self, lr=1e-3):
        super().__init__()
        self.net = UNet3D()
        self.lr = lr

    def training_step(self, batch, batch_idx):
        ct, mask = batch
        loss = F.cross_entropy(self.net(ct), mask)
        if batch_idx % 5 == 0:
            print(f"epoch {self.current_epoch} batch {batch_idx} loss {loss.item():.3f}", flush=True)
        return loss

    def validation_step(self, batch, batch_idx):
        ct, mask = batch
        pred = self.net(ct).argmax(1)  # HERE
        dice = []
        for organ in range(1, ORGANS):
            a, b = pred == organ, mask == organ
            dice.append(2 * (a & b).sum() / (a.sum() + b.sum()).clamp_min(1))
        self.log("val_dice", torch.stack(dice).mean(), batch_size=1)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.lr)


def main():
    L.seed_everything(1, verbose=False)
    trainer = L.Trainer(
        max_epochs=5,
        accelerator="auto",
        devices=1,
        num_sanity_val_steps=0,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
    )
    train_loader = DataLoader(Patches(), batch_size=4, shuffle=True, num_workers=4)
    val_loader = DataLoader(Scans(), batch_size=1)  # HERE
    trainer.fit(Segmenter(), train_loader, val_loader)


if __name__ == "__main__":
    main()
