"""Linear probe on frozen ViT features; the features are computed in the data loader
so that the training loop only sees vectors."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import timm
from torch.utils.data import DataLoader, Dataset

IMAGE = 224
CLASSES = 100
WORKERS = 12


def build_encoder():
    model = timm.create_model("vit_base_patch16_224", pretrained=False, num_classes=0)
    return model.eval().requires_grad_(False)


class EmbeddedImages(Dataset):
    """Images of one split, returned as embeddings of a frozen encoder."""

    def __init__(self, n, seed, device):
        self.n = n
        self.seed = seed
        self.device = device
        self.encoder = None

    def __len__(self):
        return self.n

    def load_image(self, i):
        gen = torch.Generator().manual_seed(self.seed * 1_000_003 + i)
        label = i % CLASSES
        image = torch.rand(3, IMAGE, IMAGE, generator=gen) * 0.5 + 0.5 * label / CLASSES
        return image, label

    @torch.inference_mode()
    def __getitem__(self, i):
        if self.encoder is None:        # once per worker
            self.encoder = build_encoder().to(self.device)  # HERE
        image, label = self.load_image(i)
        vec = self.encoder(image[None].to(self.device))[0]
        return vec.cpu().numpy(), label


class Probe(nn.Module):
    def __init__(self, dim=768):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.fc = nn.Linear(dim, CLASSES)

    def forward(self, x):
        return self.fc(self.norm(x))


def main():
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    train = EmbeddedImages(20_000, seed=1, device=device)
    loader = DataLoader(
        train,
        batch_size=64,
        shuffle=True,
        num_workers=WORKERS,  # HERE
        multiprocessing_context="spawn",
        persistent_workers=True,
    )

    probe = Probe().to(device)
    opt = torch.optim.AdamW(probe.parameters(), lr=1e-3)
    for epoch in range(3):
        seen = hits = 0
        for step, (x, y) in enumerate(loader):
            x, y = x.to(device), y.to(device)
            logits = probe(x)
            loss = F.cross_entropy(logits, y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            hits += (logits.argmax(-1) == y).sum().item()
            seen += len(y)
            if step % 20 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.3f} acc {hits / seen:.3f}", flush=True)


if __name__ == "__main__":
    main()
