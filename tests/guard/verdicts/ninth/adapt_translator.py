"""Scores translation pairs with the averaged weights of a pretraining checkpoint."""
import argparse
import os
import tempfile

import torch
import torch.nn.functional as F
from torch import nn


class PairScorer(nn.Module):
    """Encodes source and target and says how well the one translates the other."""

    def __init__(self, vocab, dim, layers):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.source = self.tower(dim, layers)
        self.target = self.tower(dim, layers)

    @staticmethod
    def tower(dim, layers):
        layer = nn.TransformerEncoderLayer(
            dim, dim // 64, 4 * dim, dropout=0.0, activation="gelu", batch_first=True, norm_first=True,
        )
        return nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)

    def forward(self, source, target):
        a = self.source(self.embed(source)).mean(1)
        b = self.target(self.embed(target)).mean(1)
        return F.cosine_similarity(a, b)


def pretrain(args, path):
    """Stands for the long run on the cluster: leaves a checkpoint with the weights and their moving average."""
    model = PairScorer(args.vocab, args.dim, args.layers)
    weights = model.state_dict()
    average = {name: value * 0.999 for name, value in weights.items()}
    torch.save({"step": 100_000, "model": weights, "ema": average, "args": vars(args)}, path)


def build(args, path, device):
    model = PairScorer(args.vocab, args.dim, args.layers).to(device)
    checkpoint = torch.load(path, map_location=device)  # HERE
    model.load_state_dict(checkpoint["ema"])
    print(f"weights of step {checkpoint['step']}", flush=True)
    return model.eval()


def pairs(count, length, vocab, seed=0):
    gen = torch.Generator().manual_seed(seed)
    source = torch.randint(vocab, (count, length), generator=gen)
    target = (source * 3 + 1) % vocab
    wrong = torch.rand(count, generator=gen) < 0.5
    target[wrong] = torch.randint(vocab, (int(wrong.sum()), length), generator=gen)
    return source, target, wrong


@torch.inference_mode()
def score(model, source, target, batch, device):
    scores = []
    for a, b in zip(source.split(batch), target.split(batch)):
        scores.append(model(a.to(device), b.to(device)).cpu())
    return torch.cat(scores)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--vocab", type=int, default=32_000)
    parser.add_argument("--dim", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=11)
    parser.add_argument("--pairs", type=int, default=2000)
    parser.add_argument("--batch", type=int, default=16)
    args = parser.parse_args()
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "pretrained.pt")
        pretrain(args, path)
        print("checkpoint there", flush=True)
        model = build(args, path, device)
    source, target, wrong = pairs(args.pairs, 64, args.vocab)
    scores = score(model, source, target, args.batch, device)
    print(f"right pairs {scores[~wrong].mean():.3f}, wrong pairs {scores[wrong].mean():.3f}")


if __name__ == "__main__":
    main()
