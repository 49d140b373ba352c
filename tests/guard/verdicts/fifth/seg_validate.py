import torch
import torch.nn as nn
import torch.nn.functional as F


def block(cin, cout):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, padding=1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True),
        nn.Conv2d(cout, cout, 3, padding=1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True))


class UNet(nn.Module):
    def __init__(self, classes=8, w=32):
        super().__init__()
        self.e1, self.e2, self.e3 = block(3, w), block(w, 2 * w), block(2 * w, 4 * w)
        self.u2, self.u1 = nn.ConvTranspose2d(4 * w, 2 * w, 2, 2), nn.ConvTranspose2d(2 * w, w, 2, 2)
        self.d2, self.d1 = block(4 * w, 2 * w), block(2 * w, w)
        self.out = nn.Conv2d(w, classes, 1)

    def forward(self, x):
        a = self.e1(x)
        b = self.e2(F.max_pool2d(a, 2))
        c = self.e3(F.max_pool2d(b, 2))
        b = self.d2(torch.cat([self.u2(c), b], 1))
        a = self.d1(torch.cat([self.u1(b), a], 1))
        return self.out(a)


def batches(n, bs, size):
    for _ in range(n):
        x = torch.rand(bs, 3, size, size)
        yield x, (x.mean(1) * 8).long().clamp(0, 7)


def validate(model, criterion):
    model.eval()
    inter, total, val_loss = 0, 0, 0.0
    for x, y in batches(20, 8, 512):
        y = y.cuda()
        logits = model(x.cuda())  # HERE
        val_loss += criterion(logits, y).item()
        inter += (logits.argmax(1) == y).sum().item()
        total += y.numel()
    return val_loss / 20, inter / total


if __name__ == "__main__":
    torch.manual_seed(1)
    model = UNet().cuda()
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(5):
        model.train()
        for i, (x, y) in enumerate(batches(120, 8, 256)):
            loss = criterion(model(x.cuda()), y.cuda())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if i % 30 == 0:
                print(f"[{epoch}:{i}] train loss {loss.item():.3f}", flush=True)
        vl, acc = validate(model, criterion)
        print(f"epoch {epoch} val loss {vl:.3f} pixel acc {acc:.3f}")
