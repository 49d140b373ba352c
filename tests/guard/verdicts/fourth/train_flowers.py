import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
import torchvision


class FakeFlowers(Dataset):
    def __init__(self, n, size=224):
        self.n, self.size = n, size

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        return torch.rand(3, self.size, self.size, generator=g), i % 102


class Trainer:
    def __init__(self, model, device):
        self.model = model.to(device)
        self.device = device
        self.criterion = nn.CrossEntropyLoss()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)

    def train_epoch(self, loader):
        self.model.train()
        running = 0.0
        for x, y in loader:
            x, y = x.to(self.device), y.to(self.device)
            self.optimizer.zero_grad()
            loss = self.criterion(self.model(x), y)
            loss.backward()
            self.optimizer.step()
            running += loss.item()
        return running / len(loader)

    def validate(self, loader):
        self.model.eval()
        val_loss, correct, seen = 0.0, 0, 0
        for x, y in loader:
            x, y = x.to(self.device), y.to(self.device)
            logits = self.model(x)
            val_loss += self.criterion(logits, y)  # HERE
            correct += (logits.argmax(1) == y).sum().item()
            seen += len(y)
        return val_loss.item() / len(loader), correct / seen

    def fit(self, train_loader, val_loader, epochs):
        for ep in range(epochs):
            tr = self.train_epoch(train_loader)
            va, acc = self.validate(val_loader)
            print(f"[{ep}] train {tr:.4f} val {va:.4f} acc {acc:.3f}")


DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
train_dl = DataLoader(FakeFlowers(128), batch_size=16, shuffle=True)
val_dl = DataLoader(FakeFlowers(640), batch_size=32)
Trainer(torchvision.models.resnet34(num_classes=102), DEVICE).fit(train_dl, val_dl, epochs=5)
