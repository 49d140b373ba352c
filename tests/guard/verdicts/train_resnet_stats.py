"""Train a ResNet-18 and report, per stage, the share of units that never fire in an epoch."""
import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchvision.models import resnet18


class ActivationStats:
    def __init__(self, net, stages=("layer1", "layer2", "layer3", "layer4")):
        self.maps = {name: [] for name in stages}
        for name in stages:
            getattr(net, name).register_forward_hook(self._make_hook(name))

    def _make_hook(self, name):
        def hook(module, inputs, output):
            self.maps[name].append(output)  # HERE

        return hook

    def report(self):
        for name, maps in self.maps.items():
            alive = torch.cat(maps).amax(dim=(0, 2, 3)) > 0
            print(f"{name}: {100 * (1 - alive.float().mean().item()):.1f}% dead channels")
            maps.clear()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--samples", type=int, default=5120)
    args = parser.parse_args()

    torch.manual_seed(0)
    base = torch.randn(512, 3, 224, 224)
    pick = torch.randint(0, 512, (args.samples,))
    loader = DataLoader(TensorDataset(pick, torch.randint(0, 100, (args.samples,))), batch_size=args.batch_size)

    net = resnet18(num_classes=100).cuda()
    stats = ActivationStats(net)
    criterion = nn.CrossEntropyLoss()
    opt = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-4)
    for epoch in range(args.epochs):
        for i, (index, target) in enumerate(loader):
            loss = criterion(net(base[index].cuda()), target.cuda())
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            if i % 10 == 0:
                print(f"epoch {epoch} iter {i} loss {loss.item():.3f}", flush=True)
        stats.report()


if __name__ == "__main__":
    main()
