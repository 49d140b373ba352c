import threading
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn

DEVICE = "cuda"
WORKERS = 8
_local = threading.local()


def build_ranker(width=8192, depth=3):
    layers = []
    for _ in range(depth):
        layers += [nn.Linear(width, width, device=DEVICE), nn.GELU()]
    layers.append(nn.Linear(width, 1, device=DEVICE))
    return nn.Sequential(*layers).eval()


def get_ranker():
    if not hasattr(_local, "ranker"):
        _local.ranker = build_ranker()  # HERE
    return _local.ranker


def handle(request_id):
    model = get_ranker()
    with torch.inference_mode():
        docs = torch.randn(512, 8192, device=DEVICE)
        order = model(docs).squeeze(1).argsort(descending=True)
    return request_id, order[:10].tolist()


if __name__ == "__main__":
    with ThreadPoolExecutor(max_workers=WORKERS) as ex:
        for rid, top in ex.map(handle, range(256)):
            if rid % 32 == 0:
                print(rid, top[:3])
