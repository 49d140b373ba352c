import queue
import threading

import timm
import torch
import torch.nn.functional as F


class CudaPrefetcher:
    """uploads the batches in the background so that the GPU never waits"""

    def __init__(self, n_batches, device, batch=64, size=512):
        self.n, self.device = n_batches, device
        self.pool = [torch.randint(0, 256, (batch, 3, size, size), dtype=torch.uint8).pin_memory()
                     for _ in range(2)]
        self.q = queue.Queue()  # HERE
        self.t = threading.Thread(target=self._work, daemon=True)
        self.t.start()

    def _work(self):
        try:
            for i in range(self.n):
                x = self.pool[i % 2].to(self.device).float().div_(255)
                y = torch.randint(0, 100, (x.shape[0],), device=self.device)
                self.q.put((x, y))
            self.q.put(None)
        except Exception as e:   # hand it to the main thread
            self.q.put(e)

    def __iter__(self):
        while True:
            item = self.q.get()
            if item is None:
                return
            if isinstance(item, Exception):
                raise item
            yield item


def main():
    device = torch.device("cuda")
    loader = CudaPrefetcher(600, device)
    model = timm.create_model("resnet18", pretrained=False, num_classes=100).to(device)
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    for step, (x, y) in enumerate(loader):
        x = F.interpolate(x, size=128, mode="bilinear", antialias=True)
        loss = F.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        print(step, loss.item(), flush=True)


if __name__ == "__main__":
    main()
