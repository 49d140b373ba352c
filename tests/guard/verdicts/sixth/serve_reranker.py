"""Replay of a day of re-ranking requests against the in-process service."""
import argparse
import logging
import random
import time

import torch
import torch.nn as nn

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
log = logging.getLogger("rerank")


class EmptyResult(ValueError):
    pass


class CrossEncoder(nn.Module):
    def __init__(self, vocab=30000, dim=768, depth=6):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        layer = nn.TransformerEncoderLayer(dim, 12, 4 * dim, batch_first=True)
        self.enc = nn.TransformerEncoder(layer, depth)
        self.score = nn.Linear(dim, 1)

    def forward(self, ids):
        return self.enc(self.emb(ids))


class Service:
    def __init__(self, device="cuda"):
        self.device = device
        self.model = CrossEncoder().to(device).eval()
        self.failed = []
        self.served = 0

    def _rank(self, ids, threshold):
        hidden = self.model(ids)
        pooled = hidden.mean(1)
        scores = self.model.score(pooled).squeeze(-1)
        keep = (scores > threshold).nonzero().squeeze(-1)
        if keep.numel() == 0:
            raise EmptyResult(f"no passage above {threshold}")
        return keep[scores[keep].argsort(descending=True)].tolist()

    @torch.inference_mode()
    def handle(self, request):
        ids = request["ids"].to(self.device)
        return self._rank(ids, request["threshold"])

    def serve(self, request):
        try:
            result = self.handle(request)
            self.served += 1
            return {"id": request["id"], "order": result}
        except EmptyResult as err:
            # collected for the daily report
            self.failed.append((request["id"], err))  # HERE
            return {"id": request["id"], "order": []}


def requests(n, seed=0):
    rng = random.Random(seed)
    for i in range(n):
        passages = rng.choice([32, 48, 64])
        yield {"id": i, "ids": torch.randint(0, 30000, (passages, 256)),
               "threshold": 5.0 if rng.random() < 0.35 else -5.0}


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--requests", type=int, default=1000)
    args = ap.parse_args()
    service, start = Service(), time.time()
    for k, request in enumerate(requests(args.requests)):
        service.serve(request)
        if k % 20 == 0:
            log.info("%d requests, %d served, %d empty, %.1f/s", k, service.served,
                     len(service.failed), (k + 1) / (time.time() - start))
    for rid, err in service.failed[:20]:
        log.info("request %d: %s", rid, err)


if __name__ == "__main__":
    main()
