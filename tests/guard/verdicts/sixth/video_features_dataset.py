"""Clip classifier on frame features; the frames are embedded in the dataset."""
import argparse

import timm
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


class ClipFeatures(Dataset):
    """Returns a (frames, channels) feature matrix for each clip."""

    def __init__(self, clips, frames=8, size=128, device="cuda"):
        self.clips, self.frames, self.size, self.device = clips, frames, size, device
        self.backbone = None

    def _embed(self, video):
        if self.backbone is None:
            # lazily, the dataset has to be picklable
            net = timm.create_model("vit_base_patch16_224", pretrained=False,
                                    img_size=self.size, num_classes=0)
            self.backbone = net.to(self.device).eval()  # HERE
        with torch.inference_mode():
            return self.backbone(video.to(self.device)).cpu().numpy()

    def __len__(self):
        return self.clips

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        video = torch.rand(self.frames, 3, self.size, self.size, generator=g)
        return torch.from_numpy(self._embed(video)), i % 10


class Pooler(nn.Module):
    def __init__(self, dim=768, classes=10):
        super().__init__()
        self.att = nn.Linear(dim, 1)
        self.out = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, classes))

    def forward(self, x):
        w = self.att(x).softmax(1)
        return self.out((w * x).sum(1))


def train(args):
    data = ClipFeatures(args.clips)
    loader = DataLoader(data, batch_size=16, shuffle=True, num_workers=args.workers,  # HERE
                        multiprocessing_context="spawn", persistent_workers=True)
    model = Pooler().cuda()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(args.epochs):
        for i, (x, y) in enumerate(loader):
            loss = nn.functional.cross_entropy(model(x.cuda()), y.cuda())
            opt.zero_grad()
            loss.backward()
            opt.step()
            if i % 5 == 0:
                print(f"epoch {epoch} batch {i} loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--clips", type=int, default=640)
    ap.add_argument("--workers", type=int, default=8)
    ap.add_argument("--epochs", type=int, default=2)
    torch.manual_seed(0)
    train(ap.parse_args())
