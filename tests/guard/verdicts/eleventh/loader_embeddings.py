"""Classify patches from embeddings that the data set computes on the fly."""
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


def build_encoder(dim=4096, depth=9):
    torch.manual_seed(0)
    with torch.device("cuda"):
        layers = []
        for _ in range(depth):
            layers += [nn.Linear(dim, dim), nn.ReLU()]
        return nn.Sequential(*layers).eval()


class PatchEmbeddings(Dataset):
    def __init__(self, n):
        self.n = n
        self.encoder = None

    def __len__(self):
        return self.n

    @torch.no_grad()
    def __getitem__(self, i):
        if self.encoder is None:
            self.encoder = build_encoder()  # HERE
        g = torch.Generator().manual_seed(i)
        patch = torch.randn(4096, generator=g)
        z = self.encoder(patch.cuda().unsqueeze(0))[0]
        return z.cpu(), int(patch[0] > 0)


def main():
    data = PatchEmbeddings(3200)
    loader = DataLoader(data, batch_size=32, num_workers=8,  # HERE
                        multiprocessing_context="spawn", persistent_workers=True)
    head = nn.Sequential(nn.Linear(4096, 512), nn.ReLU(), nn.Linear(512, 2)).cuda()
    opt = torch.optim.Adam(head.parameters(), lr=1e-3)
    for epoch in range(2):
        for i, (z, y) in enumerate(loader):
            loss = nn.functional.cross_entropy(head(z.cuda()), y.cuda())
            opt.zero_grad()
            loss.backward()
            opt.step()
            if i % 20 == 0:
                print(f"epoch {epoch} batch {i}: {loss.item():.4f}", flush=True)
    print("done")


if __name__ == "__main__":
    main()
