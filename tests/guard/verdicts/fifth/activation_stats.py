import argparse
import torch
import torchvision

p = argparse.ArgumentParser()
p.add_argument("--arch", default="resnet50")
p.add_argument("--images", type=int, default=2000)
p.add_argument("--bs", type=int, default=16)
args = p.parse_args()

net = getattr(torchvision.models, args.arch)(weights=None).cuda().eval()
acts = {}


def tap(name):
    def fn(module, inputs, output):
        acts.setdefault(name, []).append(output.detach())  # HERE
    return fn


for stage in ("layer1", "layer2", "layer3", "layer4"):
    getattr(net, stage).register_forward_hook(tap(stage))


def image_batches(n, bs):
    g = torch.Generator().manual_seed(0)
    base = torch.rand(8, 3, 56, 56, generator=g)
    for i in range(0, n, bs):
        pick = base[torch.randint(0, 8, (bs,), generator=g)]
        img = torch.nn.functional.interpolate(pick, size=224, mode="bicubic")
        yield (img + 0.1 * torch.randn(img.shape, generator=g)).sub(0.45).div(0.23)


top1 = []
with torch.no_grad():
    for i, img in enumerate(image_batches(args.images, args.bs)):
        top1.extend(net(img.cuda()).argmax(1).tolist())
        if i % 5 == 0:
            print(f"{i * args.bs} images", flush=True)

for name, chunks in acts.items():
    mean = torch.stack([c.mean(dim=(0, 2, 3)) for c in chunks]).mean(0)
    std = torch.stack([c.std(dim=(0, 2, 3)) for c in chunks]).mean(0)
    dead = (mean.abs() < 1e-6).float().mean().item()
    print(f"{name}: channels {mean.numel()} mean {mean.mean():.4f} std {std.mean():.4f} dead {dead:.2%}")
print("predicted classes:", len(set(top1)))
