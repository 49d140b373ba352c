import argparse
import copy
import time

import timm
import timm.optim
import torch
import torch.nn.functional as F


def get_args():
    p = argparse.ArgumentParser(description="fine-tune and average the best epochs (model soup)")
    p.add_argument("--model", default="convnext_tiny")
    p.add_argument("--classes", type=int, default=37)
    p.add_argument("--size", type=int, default=128)
    p.add_argument("--batch", type=int, default=16)
    p.add_argument("--epochs", type=int, default=100)
    p.add_argument("--steps", type=int, default=5, help="steps per epoch")
    p.add_argument("--lr", type=float, default=2e-4)
    p.add_argument("--soup", type=int, default=5, help="how many epochs to average")
    return p.parse_args()


class PetBatches:
    def __init__(self, args, device, seed):
        self.args, self.device = args, device
        self.gen = torch.Generator().manual_seed(seed)

    def __iter__(self):
        a = self.args
        for _ in range(a.steps):
            y = torch.randint(a.classes, (a.batch,), generator=self.gen)
            x = torch.randn(a.batch, 3, a.size, a.size, generator=self.gen)
            x += y.view(-1, 1, 1, 1) / a.classes
            yield x.to(self.device), y.to(self.device)


def train_epoch(model, opt, batches):
    model.train()
    total = 0.0
    for x, y in batches:
        loss = F.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.item()
    return total / batches.args.steps


@torch.no_grad()
def evaluate(model, batches):
    model.eval()
    hit = n = 0
    for x, y in batches:
        hit += (model(x).argmax(-1) == y).sum().item()
        n += len(y)
    return hit / n


def make_soup(model, candidates, k):
    top = sorted(candidates, key=lambda c: c["acc"], reverse=True)[:k]
    mean = copy.deepcopy(top[0]["weights"])
    for name, value in mean.items():
        if value.is_floating_point():
            for other in top[1:]:
                value += other["weights"][name]
            value /= len(top)
    model.load_state_dict(mean)
    return [c["epoch"] for c in top]


def main():
    args = get_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(42)
    model = timm.create_model(args.model, pretrained=False, num_classes=args.classes, drop_path_rate=0.1)
    model = model.to(device)
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.05)
    train, val = PetBatches(args, device, 0), PetBatches(args, device, 1)

    candidates = []
    for epoch in range(args.epochs):
        t0 = time.time()
        loss = train_epoch(model, opt, train)
        acc = evaluate(model, val)
        candidates.append({"epoch": epoch, "acc": acc, "weights": copy.deepcopy(model.state_dict())})  # HERE
        print(f"epoch {epoch:3d} loss {loss:.3f} acc {acc:.3f} ({time.time() - t0:.1f}s)", flush=True)

    used = make_soup(model, candidates, args.soup)
    print("soup of epochs", used, "acc", evaluate(model, val))


if __name__ == "__main__":
    main()
