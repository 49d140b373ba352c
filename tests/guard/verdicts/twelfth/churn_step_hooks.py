"""Customer churn from 512 usage features. A small MLP, large batches."""
import torch
from torch import nn

FEATURES, BATCH, STEPS = 512, 8192, 800
dev = "cuda"


class ResidualMLP(nn.Module):
    def __init__(self, hidden=512, depth=3):
        super().__init__()
        self.inp = nn.Linear(FEATURES, hidden)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(hidden), nn.Linear(hidden, hidden), nn.GELU()) for _ in range(depth))
        self.out = nn.Linear(hidden, 1)

    def forward(self, x):
        h = self.inp(x)
        for block in self.blocks:
            h = h + block(h)
        return self.out(h)[:, 0]


class CustomerStream:
    def __init__(self, seed):
        self.gen = torch.Generator(device=dev).manual_seed(seed)
        self.direction = torch.randn(FEATURES, device=dev, generator=self.gen) / FEATURES ** 0.5

    def next(self):
        x = torch.randn(BATCH, FEATURES, device=dev, generator=self.gen)
        noise = torch.randn(BATCH, device=dev, generator=self.gen)
        return x, (x @ self.direction + 0.5 * noise > 0.8).float()


def watch_step(opt, model, step, x, y):
    """Measure how much the coming optimizer step improves its own batch."""
    with torch.no_grad():
        before = nn.functional.binary_cross_entropy_with_logits(model(x), y)

    def report(optimizer, args, kwargs):
        if kwargs.get("closure") is None and step == watch_step.current and step % 10 == 0:
            with torch.no_grad():
                after = nn.functional.binary_cross_entropy_with_logits(model(x), y)
            print(f"step {step}: batch loss {before.item():.4f} -> {after.item():.4f}", flush=True)

    opt.register_step_post_hook(report)  # HERE
    watch_step.current = step


def main():
    torch.manual_seed(0)
    stream = CustomerStream(seed=3)
    model = ResidualMLP().to(dev)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
    for step in range(STEPS):
        x, y = stream.next()
        watch_step(opt, model, step, x, y)
        loss = nn.functional.binary_cross_entropy_with_logits(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print("trained")


if __name__ == "__main__":
    main()
