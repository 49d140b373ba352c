import torch
import torch.nn as nn
import torch.nn.functional as F


class ConvNet(nn.Module):
    def __init__(self, w=32):
        super().__init__()
        self.c1 = nn.Conv2d(3, w, 3, padding=1)
        self.b1 = nn.BatchNorm2d(w)
        self.c2 = nn.Conv2d(w, w, 3, padding=1)
        self.b2 = nn.BatchNorm2d(w)
        self.fc = nn.Linear(w, 10)

    def forward(self, x):
        x = F.relu(self.b1(self.c1(x)))
        x = F.relu(self.b2(self.c2(x)))
        return self.fc(x.mean((2, 3)))


class BatchSchedule:
    """raise the batch size instead of lowering the learning rate"""

    def __init__(self, start, factor=2):
        self.size = start
        self.factor = factor

    def epoch_end(self):
        self.size = int(self.size * self.factor)  # HERE


if __name__ == "__main__":
    dev = "cuda"
    net = ConvNet().to(dev)
    sgd = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    sched = BatchSchedule(16)
    for epoch in range(15):
        for _ in range(5):
            x = torch.randn(sched.size, 3, 128, 128, device=dev)
            y = torch.randint(10, (sched.size,), device=dev)
            loss = F.cross_entropy(net(x), y)
            sgd.zero_grad()
            loss.backward()
            sgd.step()
        print(f"epoch {epoch} batch {sched.size} loss {loss.item():.3f}", flush=True)
        sched.epoch_end()
