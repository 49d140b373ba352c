import torch
from torch import nn


class MyBatchNorm(nn.Module):
    """Own batch norm so that we can try other running statistics later."""

    def __init__(self, c, momentum=0.1, eps=1e-5):
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(1, c, 1, 1))
        self.beta = nn.Parameter(torch.zeros(1, c, 1, 1))
        self.register_buffer("running_mean", torch.zeros(c))
        self.register_buffer("running_var", torch.ones(c))
        self.momentum, self.eps = momentum, eps

    def forward(self, x):
        if self.training:
            var, mean = torch.var_mean(x, dim=(0, 2, 3), unbiased=False)
            m = self.momentum
            self.running_mean = (1 - m) * self.running_mean + m * mean.detach()
            self.running_var = (1 - m) * self.running_var + m * x.var(dim=(0, 2, 3))  # HERE
        else:
            mean, var = self.running_mean, self.running_var
        x = (x - mean[None, :, None, None]) * torch.rsqrt(var[None, :, None, None] + self.eps)
        return x * self.gamma + self.beta


def block(i, o):
    return nn.Sequential(nn.Conv2d(i, o, 3, padding=1, bias=False), MyBatchNorm(o), nn.ReLU())


class Net(nn.Module):
    def __init__(self, classes=10, w=64):
        super().__init__()
        self.body = nn.Sequential(block(3, w), block(w, w), nn.MaxPool2d(2), block(w, 2 * w), nn.MaxPool2d(2))
        self.fc = nn.Linear(2 * w, classes)

    def forward(self, x):
        return self.fc(self.body(x).mean((2, 3)))


if __name__ == "__main__":
    torch.manual_seed(0)
    device = "cuda"
    model = Net().to(device).train()
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    ce = nn.CrossEntropyLoss()
    for step in range(500):
        x = torch.randn(16, 3, 128, 128, device=device)
        y = torch.randint(0, 10, (16,), device=device)
        opt.zero_grad(set_to_none=True)
        loss = ce(model(x), y)
        loss.backward()
        opt.step()
        if step % 5 == 0:
            print("step", step, "loss", round(loss.item(), 4), flush=True)
