"""Linear probes on every layer of a frozen encoder; the hidden states are collected first."""
import argparse
import resource

import torch
from torch import nn


def limit_address_space(gib):
    """What the batch system would grant to the job, on top of what is mapped already."""
    with open("/proc/self/statm") as f:
        used = int(f.read().split()[0]) * resource.getpagesize()
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + int(gib * 2**30), hard))


class Encoder(nn.Module):
    def __init__(self, dim, depth, patch=48):
        super().__init__()
        self.embed = nn.Linear(patch, dim)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(dim, 8, 2 * dim, dropout=0.0, batch_first=True) for _ in range(depth)
        )

    def forward(self, x):
        x = self.embed(x)
        for layer in self.layers:
            x = layer(x)
        return x


class Recorder:
    """Takes the hidden states off the GPU as soon as they are there."""

    def __init__(self, encoder):
        self.states = {i: [] for i in range(len(encoder.layers))}
        self.handles = [layer.register_forward_hook(self.hook(i)) for i, layer in enumerate(encoder.layers)]

    def hook(self, index):
        def save(module, args, output):
            self.states[index].append(output.detach().cpu())  # HERE

        return save

    def close(self):
        for handle in self.handles:
            handle.remove()


def batches(count, batch, tokens, device):
    for i in range(count):
        gen = torch.Generator().manual_seed(i)
        x = torch.randn(batch, tokens, 48, generator=gen)
        yield x.to(device), (x.mean((1, 2)) > 0).long()


def train_probe(states, labels, device, epochs=2):
    probe = nn.Linear(states[0].shape[-1], 2).to(device)
    optimizer = torch.optim.Adam(probe.parameters(), lr=1e-3)
    for _ in range(epochs):
        for x, y in zip(states, labels):
            loss = nn.functional.cross_entropy(probe(x.to(device).mean(1)), y.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return loss.item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--dim", type=int, default=1024)
    parser.add_argument("--depth", type=int, default=6)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=196)
    parser.add_argument("--batches", type=int, default=300)
    parser.add_argument("--grant", type=float, default=4.0)
    args = parser.parse_args()
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    encoder = Encoder(args.dim, args.depth).to(device).eval()
    with torch.no_grad():
        for x, _ in batches(2, args.batch, args.tokens, device):
            print("warm-up", encoder(x).cpu().std().item(), flush=True)
    limit_address_space(args.grant)

    recorder, labels = Recorder(encoder), []
    with torch.no_grad():
        for i, (x, y) in enumerate(batches(args.batches, args.batch, args.tokens, device)):
            encoder(x)
            labels.append(y)
            print(f"collected batch {i}", flush=True)
    recorder.close()
    for index, states in recorder.states.items():
        print(f"layer {index}: probe loss {train_probe(states, labels, device):.4f}", flush=True)


if __name__ == "__main__":
    main()
