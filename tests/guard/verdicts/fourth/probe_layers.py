# collect per-layer token statistics of a ViT for our layer probing study
from collections import defaultdict

import timm
import torch

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
net = timm.create_model("vit_small_patch16_224", pretrained=False).to(device).eval()

layer_out = defaultdict(list)


def make_hook(name):
    def hook(module, inputs, output):
        layer_out[name].append(output)  # HERE
    return hook


for i, blk in enumerate(net.blocks):
    blk.register_forward_hook(make_hook(f"block{i}"))

N_BATCHES = 150
with torch.inference_mode():
    for b in range(N_BATCHES):
        images = torch.randn(64, 3, 224, 224, device=device)
        net(images)
        if b % 5 == 0:
            print("batch", b, "done", flush=True)

for name, chunks in layer_out.items():
    mu = torch.stack([c.mean((0, 1)) for c in chunks]).mean(0)
    print(name, mu.norm().item())
