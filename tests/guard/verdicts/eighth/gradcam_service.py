"""Explain-on-demand worker: runs a classifier and returns multi-layer Grad-CAM heatmaps per request."""
import argparse
import logging
import queue
import time

import torch
import torch.nn.functional as F
import torchvision

logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
logger = logging.getLogger("gradcam")


class GradCAM:
    def __init__(self, model, layer_names):
        self.model = model
        self.layer_names = layer_names
        self.acts, self.grads = [], []
        modules = dict(model.named_modules())
        for name in layer_names:
            modules[name].register_forward_hook(self._on_forward)  # HERE

    def _on_forward(self, module, inputs, output):
        self.acts.append(output)
        output.register_hook(self._on_grad)

    def _on_grad(self, grad):
        self.grads.insert(0, grad)

    def __call__(self, images, target=None):
        logits = self.model(images)
        if target is None:
            target = logits.argmax(dim=1)
        self.model.zero_grad(set_to_none=True)
        logits.gather(1, target[:, None]).sum().backward()
        cams = []
        for act, grad in zip(self.acts, self.grads):
            weight = grad.mean(dim=(2, 3), keepdim=True)
            cam = F.relu((weight * act.detach()).sum(1, keepdim=True))
            cam = F.interpolate(cam, size=images.shape[-2:], mode="bilinear", align_corners=False)
            cam = cam / cam.amax(dim=(2, 3), keepdim=True).clamp_min(1e-6)
            cams.append(cam)
        return target, torch.stack(cams).mean(0).squeeze(1)


class ExplainWorker:
    def __init__(self, arch, layers, device):
        self.device = device
        self.layers = layers
        with torch.device(device):
            self.model = getattr(torchvision.models, arch)(weights=None, num_classes=120)
        self.model.eval()
        self.served = 0

    def handle(self, images):
        explainer = GradCAM(self.model, self.layers)
        labels, cams = explainer(images.to(self.device))
        self.served += 1
        return {
            "labels": labels.cpu().tolist(),
            "heatmap": (cams * 255).byte().cpu(),
        }


def incoming(n, batch, size, device):
    q = queue.Queue(maxsize=4)
    base = torch.rand(batch, 3, size, size, device=device)
    for i in range(n):
        q.put((f"req-{i:05d}", base.roll(i, dims=-1)))
        yield q.get()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--arch", default="resnet18")
    parser.add_argument("--layers", nargs="+", default=["layer1", "layer2", "layer3", "layer4"])
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--size", type=int, default=224)
    args = parser.parse_args()

    worker = ExplainWorker(args.arch, args.layers, torch.device("cuda"))
    start = time.perf_counter()
    for rid, images in incoming(args.requests, args.batch, args.size, "cuda"):
        out = worker.handle(images)
        if worker.served % 10 == 0:
            rate = worker.served / (time.perf_counter() - start)
            logger.info("%s -> class %d, heat mean %.1f (%.1f req/s)", rid, out["labels"][0],
                        out["heatmap"].float().mean().item(), rate)


if __name__ == "__main__":
    main()
