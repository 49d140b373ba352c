"""Action classifier on frozen frame embeddings, computed while loading."""
import os
import time

import torch
import torch.nn as nn
import torchvision
from torch.utils.data import DataLoader, Dataset

os.environ.setdefault("OMP_NUM_THREADS", "1")


class Clips(Dataset):
    """Each item is a clip of frames, returned as frozen ResNet-50 embeddings."""

    def __init__(self, n, frames=64, size=224):
        self.n = n
        self.frames = frames
        self.size = size
        self.encoder = None

    def __len__(self):
        return self.n

    def _lazy_encoder(self):
        if self.encoder is None:
            torch.manual_seed(0)
            net = torchvision.models.resnet50(weights=None)
            net.fc = nn.Identity()
            self.encoder = net.eval().cuda()  # HERE
        return self.encoder

    @torch.no_grad()
    def __getitem__(self, i):
        net = self._lazy_encoder()
        g = torch.Generator().manual_seed(i)
        clip = torch.randint(0, 255, (self.frames, 3, self.size, self.size),
                             generator=g, dtype=torch.uint8)
        emb = net(clip.cuda().float() / 255)
        return emb.cpu(), i % 12


class Head(nn.Module):
    def __init__(self, classes=12):
        super().__init__()
        self.rnn = nn.GRU(2048, 256, batch_first=True)
        self.fc = nn.Linear(256, classes)

    def forward(self, x):
        return self.fc(self.rnn(x)[1][-1])


def main():
    torch.manual_seed(0)
    loader = DataLoader(Clips(480), batch_size=8, num_workers=8,  # HERE
                        multiprocessing_context="spawn", persistent_workers=True)
    head = Head().cuda()
    opt = torch.optim.Adam(head.parameters(), lr=1e-3)
    for epoch in range(2):
        t0 = time.time()
        for step, (x, y) in enumerate(loader):
            loss = nn.functional.cross_entropy(head(x.cuda()), y.cuda())
            opt.zero_grad()
            loss.backward()
            opt.step()
            if step % 10 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.3f}", flush=True)
        print(f"epoch {epoch} took {time.time() - t0:.1f}s")


if __name__ == "__main__":
    main()
