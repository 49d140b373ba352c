"""Export ResNet feature maps of a folder of images (here: random images) to .npz files.

Compression is slow, so it is done by a writer thread while the GPU computes.
"""
import queue
import sys
import tempfile
import threading
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset
from torchvision.models import resnet50
from torchvision.models.feature_extraction import create_feature_extractor


class Photos(Dataset):
    def __init__(self, n=20000, size=224):
        self.n = n
        self.size = size

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        gen = torch.Generator().manual_seed(i)
        image = torch.rand(3, self.size, self.size, generator=gen)
        return (image - 0.45) / 0.225, f"img_{i:06d}"


class Writer(threading.Thread):
    """Takes (names, feature dict) from a queue and writes one archive per batch."""

    def __init__(self, folder):
        super().__init__(daemon=True)
        self.folder = Path(folder)
        self.jobs = queue.Queue()
        self.written = 0

    def submit(self, names, feats):
        self.jobs.put((names, feats))  # HERE

    def run(self):
        while True:
            job = self.jobs.get()
            if job is None:
                return
            names, feats = job
            arrays = {k: v.cpu().numpy().astype(np.float16) for k, v in feats.items()}
            target = self.folder / f"{names[0]}.npz"
            np.savez_compressed(target, names=np.array(names), **arrays)
            target.unlink()         # dry run: measure, do not fill the disk
            self.written += 1

    def close(self):
        self.jobs.put(None)
        self.join()


@torch.inference_mode()
def export(model, loader, writer, device):
    for i, (images, names) in enumerate(loader):
        feats = model(images.to(device, non_blocking=True))
        writer.submit(list(names), feats)
        if i % 5 == 0:
            print(f"batch {i}/{len(loader)}, written {writer.written}", flush=True)


def main():
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    backbone = resnet50(weights=None).eval().to(device)
    model = create_feature_extractor(backbone, return_nodes={"layer3": "mid", "layer4": "high"})

    loader = DataLoader(Photos(), batch_size=64, num_workers=4, pin_memory=device.type == "cuda")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        writer = Writer(folder)
        writer.start()
        export(model, loader, writer, device)
        writer.close()
        print("done,", writer.written, "files")


if __name__ == "__main__":
    sys.exit(main())
