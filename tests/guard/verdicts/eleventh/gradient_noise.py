import torch
import torch.nn as nn
import torch.nn.functional as F


class Net(nn.Module):
    def __init__(self, d=1024, depth=10):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(d, d) for _ in range(depth)])
        self.head = nn.Linear(d, 20)

    def forward(self, x):
        for l in self.layers:
            x = x + F.silu(l(x))
        return self.head(x)


class GradientNoise:
    """Simple noise scale tr(S)/|G|^2, estimated over a run."""

    def __init__(self, model):
        self.model = model
        self.record = {}

    def collect(self, step):
        grads = {n: p.grad for n, p in self.model.named_parameters()}
        self.record[step] = grads  # HERE

    def estimate(self):
        total_var, total_sq = 0.0, 0.0
        steps = sorted(self.record)
        for name in self.record[steps[0]]:
            s = sum(self.record[k][name] for k in steps) / len(steps)
            var = sum(((self.record[k][name] - s) ** 2).sum() for k in steps) / len(steps)
            total_var += var.item()
            total_sq += (s ** 2).sum().item()
        return total_var / total_sq


torch.manual_seed(0)
dev = "cuda:0"
net = Net().to(dev)
opt = torch.optim.Adam(net.parameters(), lr=1e-4)
noise = GradientNoise(net)

for step in range(240):
    x = torch.randn(512, 1024, device=dev)
    y = x[:, :20].argmax(-1)
    opt.zero_grad(set_to_none=True)
    loss = F.cross_entropy(net(x), y)
    loss.backward()
    noise.collect(step)
    opt.step()
    if step % 10 == 0:
        print("step", step, "loss", round(loss.item(), 4), flush=True)

print("noise scale", noise.estimate())
