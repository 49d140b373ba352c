import torch
import torch.nn as nn


class WideMLP(nn.Module):
    def __init__(self, width=6144, depth=8):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))

    def forward(self, x):
        for layer in self.layers:
            x = x + torch.relu(layer(x))
        return x


class LitLike:
    """tiny stand-in for a LightningModule"""

    def __init__(self):
        self.model = WideMLP()

    def configure_optimizers(self):
        return torch.optim.AdamW(self.model.parameters(), lr=2e-4, weight_decay=0.05)  # HERE

    def training_step(self, batch, idx):
        return (self.model(batch) - batch.roll(1, dims=1)).pow(2).mean()


def fit(module, steps, device):
    module.model.to(device)
    optimizer = module.configure_optimizers()
    for idx in range(steps):
        batch = torch.randn(64, 6144, device=device)
        loss = module.training_step(batch, idx)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {idx}: {loss.item():.4f}")


fit(LitLike(), steps=100, device="cuda")
