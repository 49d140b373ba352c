import logging
import torch
import torch.nn as nn

logging.basicConfig(level=logging.INFO)
log = logging.getLogger("tiles")


class BadTile(ValueError):
    pass


def load_tiles(i, device):
    t = torch.rand(16, 3, 1024, 1024, device=device)
    if i % 2 == 1:           # some acquisitions have dead pixels
        t[0, 0, 0, 0] = float("nan")
    return t


class TileScorer:
    def __init__(self, device):
        self.device = device
        self.conv = nn.Conv2d(3, 8, 3, padding=1).to(device).eval()
        self.failed = {}
        self.scores = {}

    @torch.no_grad()
    def score(self, i):
        tiles = load_tiles(i, self.device)
        feats = self.conv(tiles)
        top = feats.amax(dim=(1, 2, 3))
        if not torch.isfinite(top).all():
            raise BadTile(f"group {i}: non finite response")
        return top.cpu()

    def run(self, n):
        for i in range(n):
            try:
                self.scores[i] = self.score(i)
            except BadTile as err:
                log.warning("skipping %d (%s)", i, err)
                self.failed[i] = err  # HERE


scorer = TileScorer("cuda")
scorer.run(120)
print(len(scorer.scores), "ok,", len(scorer.failed), "failed")
for i, e in scorer.failed.items():
    print(i, e)
