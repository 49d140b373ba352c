"""Character-level CNN (Zhang, Zhao & LeCun 2015) for topic classification."""
import resource
import string

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

ALPHABET = string.ascii_lowercase + string.digits + "-,;.!?:'\"/\\|_@#$%^&*~`+=<>()[]{} \n"
LENGTH = 1014
CLASSES = 14
N_TRAIN = 60_000
N_TEST = 1_000


def cap_host_memory(extra_gib):
    """The box is shared: never take more than this on top of what we already use."""
    with open("/proc/self/statm") as f:
        now = int(f.read().split()[0]) * resource.getpagesize()
    soft = now + int(extra_gib * 2**30)
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


class CharCNN(nn.Module):
    def __init__(self, channels=256):
        super().__init__()
        n = len(ALPHABET)
        self.features = nn.Sequential(
            nn.Conv1d(n, channels, 7), nn.ReLU(), nn.MaxPool1d(3),
            nn.Conv1d(channels, channels, 7), nn.ReLU(), nn.MaxPool1d(3),
            nn.Conv1d(channels, channels, 3), nn.ReLU(),
            nn.Conv1d(channels, channels, 3), nn.ReLU(),
            nn.AdaptiveMaxPool1d(8),
        )
        self.head = nn.Sequential(
            nn.Flatten(), nn.Linear(8 * channels, 1024), nn.ReLU(), nn.Dropout(0.5),
            nn.Linear(1024, CLASSES),
        )

    def forward(self, x):
        return self.head(self.features(x.float().transpose(1, 2)))


def read_corpus(n, seed):
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, len(ALPHABET), size=(n, LENGTH), dtype=np.int64)
    return codes, rng.integers(0, CLASSES, size=n)


def quantize(codes):
    table = np.eye(len(ALPHABET))
    return table[codes]  # HERE


def make_loader(codes, labels, shuffle):
    x = torch.from_numpy(quantize(codes))  # HERE
    y = torch.from_numpy(labels)
    return DataLoader(TensorDataset(x, y), batch_size=128, shuffle=shuffle, drop_last=shuffle)


def accuracy(model, loader, device):
    model.eval()
    right = total = 0
    with torch.no_grad():
        for x, y in loader:
            pred = model(x.to(device)).argmax(1).cpu()
            right += (pred == y).sum().item()
            total += len(y)
    return right / total


def main():
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    model = CharCNN().to(device)
    model(torch.zeros(2, LENGTH, len(ALPHABET), device=device)).sum().backward()    # build kernels
    cap_host_memory(8)

    test_loader = make_loader(*read_corpus(N_TEST, seed=1), shuffle=False)
    print(f"before training: {accuracy(model, test_loader, device):.3f}", flush=True)
    train_loader = make_loader(*read_corpus(N_TRAIN, seed=0), shuffle=True)

    opt = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for epoch in range(10):
        model.train()
        for i, (x, y) in enumerate(train_loader):
            loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
            opt.zero_grad()
            loss.backward()
            opt.step()
            if i % 50 == 0:
                print(epoch, i, f"{loss.item():.3f}", flush=True)
        print(f"epoch {epoch}: {accuracy(model, test_loader, device):.3f}", flush=True)


if __name__ == "__main__":
    main()
