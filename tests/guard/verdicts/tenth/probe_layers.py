"""How linear are the layers? Fit a ridge probe on the pooled activations of each block."""
import argparse
from collections import defaultdict

import torch
import torchvision


def attach(model, names):
    """Registers hooks on the named modules and returns the store and the handles."""
    store = defaultdict(list)

    def saver(name):
        def hook(module, inputs, output):
            store[name].append(output)  # HERE
        return hook

    modules = dict(model.named_modules())
    handles = [modules[n].register_forward_hook(saver(n)) for n in names]
    return store, handles


def images(n, batch, size, device):
    g = torch.Generator().manual_seed(0)
    for lo in range(0, n, batch):
        k = min(batch, n - lo)
        y = torch.randint(0, 10, (k,), generator=g)
        x = torch.rand(k, 3, size, size, generator=g) + 0.05 * y[:, None, None, None]
        yield x.to(device), y


def ridge_accuracy(features, labels, lam=1.0):
    x = torch.cat(features).double()
    y = torch.nn.functional.one_hot(labels, 10).double()
    eye = torch.eye(x.shape[1], dtype=x.dtype)
    w = torch.linalg.solve(x.T @ x + lam * eye, x.T @ y)
    return ((x @ w).argmax(1) == labels).double().mean().item()


def run(args):
    torch.manual_seed(0)
    model = torchvision.models.resnet34(weights=None).to(args.device).eval()
    layers = ["layer1", "layer2", "layer3", "layer4"]
    store, handles = attach(model, layers)
    labels = []
    with torch.no_grad():
        for i, (x, y) in enumerate(images(args.images, args.batch, args.size, args.device)):
            model(x)
            labels.append(y)
            if i % 10 == 0:
                print(f"batch {i}: {sum(map(len, store.values()))} activations seen", flush=True)
    for h in handles:
        h.remove()
    labels = torch.cat(labels)
    for name in layers:
        pooled = [a.mean(dim=(2, 3)).cpu() for a in store[name]]
        print(f"{name}: probe accuracy {ridge_accuracy(pooled, labels):.3f}")


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--images", type=int, default=6400)
    p.add_argument("--batch", type=int, default=64)
    p.add_argument("--size", type=int, default=224)
    p.add_argument("--device", default="cuda")
    run(p.parse_args())
