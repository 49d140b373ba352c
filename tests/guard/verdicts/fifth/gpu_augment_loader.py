import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import Dataset, DataLoader


class Spectrograms(Dataset):
    """Raw audio in memory, mel-like features computed on the fly."""

    def __init__(self, n=512, length=8000):
        g = torch.Generator().manual_seed(3)
        freq = torch.rand(n, 1, generator=g) * 0.4
        self.wave = torch.sin(freq * torch.arange(length)) + 0.1 * torch.randn(n, length, generator=g)
        self.label = (freq[:, 0] * 10).long()

    def __len__(self):
        return len(self.wave)

    def __getitem__(self, i):
        w = self.wave[i].to("cuda")  # HERE
        w = w * (0.5 + torch.rand(1, device="cuda")) + 0.01 * torch.randn_like(w)
        frames = w.unfold(0, 512, 128) * torch.hann_window(512, device="cuda")
        spec = F.avg_pool1d(frames.abs().unsqueeze(0), 4).squeeze(0).log1p()
        return spec.cpu(), self.label[i]


class Net(nn.Module):
    def __init__(self, classes=4):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(1, 16, 3, 2), nn.ReLU(), nn.Conv2d(16, 32, 3, 2), nn.ReLU(),
            nn.Conv2d(32, 64, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(1))
        self.fc = nn.Linear(64, classes)

    def forward(self, x):
        return self.fc(self.conv(x.unsqueeze(1)).flatten(1))


def main():
    loader = DataLoader(Spectrograms(), batch_size=16, shuffle=True, num_workers=10,  # HERE
                        multiprocessing_context="spawn", persistent_workers=True)
    net = Net().cuda()
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    for epoch in range(5):
        hits = seen = 0
        for spec, label in loader:
            spec, label = spec.cuda(), label.cuda()
            logits = net(spec)
            loss = F.cross_entropy(logits, label)
            opt.zero_grad()
            loss.backward()
            opt.step()
            hits += (logits.argmax(1) == label).sum().item()
            seen += len(label)
        print(f"epoch {epoch} loss {loss.item():.3f} acc {hits / seen:.3f}", flush=True)


if __name__ == "__main__":
    main()
