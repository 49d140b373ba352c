"""PatchCore-style anomaly detection: a memory bank of patch features of good parts."""
import lightning as L
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset
from torchvision.models import resnet50
from torchvision.models.feature_extraction import create_feature_extractor


class GoodParts(Dataset):
    def __init__(self, n=3000, size=224):
        self.n, self.size = n, size

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        gen = torch.Generator().manual_seed(i)
        return torch.randn(3, self.size, self.size, generator=gen)


class PatchCore(L.LightningModule):
    def __init__(self, coreset=0.01, projection=128):
        super().__init__()
        self.automatic_optimization = False
        backbone = resnet50(weights=None)
        self.extract = create_feature_extractor(backbone, {"layer2": "l2", "layer3": "l3"})
        self.extract.requires_grad_(False)
        self.coreset = coreset
        self.projection = projection
        self.bank = []
        self.register_buffer("memory", torch.empty(0))

    def configure_optimizers(self):
        return None

    def embed(self, images):
        self.extract.eval()
        with torch.no_grad():
            feats = self.extract(images)
            low = F.avg_pool2d(feats["l2"], 3, stride=1, padding=1)
            high = F.avg_pool2d(feats["l3"], 3, stride=1, padding=1)
            high = F.interpolate(high, size=low.shape[-2:], mode="bilinear")
            patches = torch.cat([low, high], dim=1)
            return patches.permute(0, 2, 3, 1).flatten(0, 2)

    def training_step(self, batch, batch_idx):
        patches = self.embed(batch)
        self.bank.append(patches)  # HERE
        if batch_idx % 10 == 0:
            print(f"batch {batch_idx}: {sum(len(p) for p in self.bank)} patches", flush=True)

    def on_train_epoch_end(self):
        patches = torch.cat(self.bank)
        keep = self.k_center_greedy(patches, int(self.coreset * len(patches)))
        self.memory = patches[keep]
        self.bank.clear()

    def k_center_greedy(self, x, k):
        gen = torch.Generator(device=x.device).manual_seed(0)
        basis = torch.randn(x.shape[1], self.projection, device=x.device, generator=gen)
        z = x @ basis
        chosen = [0]
        dist = (z - z[0]).pow(2).sum(1)
        for _ in range(k - 1):
            far = int(dist.argmax())
            chosen.append(far)
            dist = torch.minimum(dist, (z - z[far]).pow(2).sum(1))
        return torch.tensor(chosen, device=x.device)

    def score(self, images):
        patches = self.embed(images)
        nearest = torch.cdist(patches, self.memory).min(1).values
        return nearest.view(len(images), -1).max(1).values


def main():
    L.seed_everything(0)
    model = PatchCore()
    loader = DataLoader(GoodParts(), batch_size=32, num_workers=4, shuffle=True)
    trainer = L.Trainer(
        max_epochs=1,
        accelerator="auto",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
    )
    trainer.fit(model, loader)

    model.to("cuda" if torch.cuda.is_available() else "cpu")
    test = torch.stack([GoodParts()[i] for i in range(4)]).to(model.device)
    print("scores", model.score(test).tolist())


if __name__ == "__main__":
    main()
