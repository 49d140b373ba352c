import os
import tempfile

import torch
import torch.nn as nn


class Ranker(nn.Module):
    def __init__(self, width=4096, depth=24):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.score = nn.Linear(width, 1)

    def forward(self, x):
        for layer in self.layers:
            x = x + torch.tanh(layer(x))
        return self.score(x).squeeze(-1)


def save_checkpoint(path, model, epoch):
    torch.save({"epoch": epoch, "model": model.state_dict()}, path)


def resume(path, model, device):
    checkpoint = torch.load(path, map_location=device)  # HERE
    model.load_state_dict(checkpoint["model"])
    print(f"resumed from epoch {checkpoint['epoch']}")
    return checkpoint["epoch"]


def train(model, device, start, epochs=4, width=4096):
    optimizer = torch.optim.SGD(model.score.parameters(), lr=1e-3)
    gen = torch.Generator().manual_seed(5)
    for epoch in range(start, epochs):
        x = torch.randn(64, width, generator=gen).to(device)
        y = torch.rand(64, generator=gen).to(device)
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"epoch {epoch} loss {loss.item():.4f}")


if __name__ == "__main__":
    torch.manual_seed(0)
    device = torch.device("cuda", 0)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "last.pt")
        model = Ranker()
        save_checkpoint(path, model, epoch=1)
        print(f"saved {os.path.getsize(path) / 2**20:.0f} MiB")
        model.requires_grad_(False).to(device)
        model.score.requires_grad_(True)
        start = resume(path, model, device)
        train(model, device, start)
