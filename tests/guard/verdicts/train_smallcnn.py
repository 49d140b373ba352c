"""Small CNN on 32x32 images with colour jitter; plots train loss against loss on clean images."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(1234)
DEVICE = "cuda"
BATCH = 256
STEPS = 400


def block(cin, cout):
    return nn.Sequential(nn.Conv2d(cin, cout, 3, padding=1), nn.BatchNorm2d(cout), nn.ReLU())


class SmallCNN(nn.Module):
    def __init__(self, n_classes=10):
        super().__init__()
        self.features = nn.Sequential(
            block(3, 64), nn.MaxPool2d(2), block(64, 128), nn.MaxPool2d(2), block(128, 256)
        )
        self.head = nn.Linear(256, n_classes)

    def forward(self, x):
        return self.head(self.features(x).mean(dim=(2, 3)))


def jitter(x):
    gain = 1 + 0.2 * torch.randn(x.size(0), 3, 1, 1, device=x.device)
    return x * gain + 0.05 * torch.randn_like(x)


images = torch.randn(10_000, 3, 32, 32)
labels = torch.randint(0, 10, (10_000,))

model = SmallCNN().to(DEVICE)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
train_curve, clean_curve = [], []

for step in range(STEPS):
    idx = torch.randint(0, len(images), (BATCH,))
    x, y = images[idx].to(DEVICE), labels[idx].to(DEVICE)
    loss = F.cross_entropy(model(jitter(x)), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    train_curve.append(loss.item())
    if step % 5 == 0:
        clean_curve.append(F.cross_entropy(model(x), y))  # HERE
    if step % 20 == 0:
        print(f"step {step:4d}  loss {loss.item():.4f}  clean {float(clean_curve[-1]):.4f}", flush=True)

print("final clean loss", torch.stack(clean_curve[-10:]).mean().item())
