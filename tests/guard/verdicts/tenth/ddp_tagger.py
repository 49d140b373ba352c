"""Sequence tagger, two ranks over gloo. Rank 0 also writes the training report."""
import argparse
import collections
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Recorder:
    """Collects what the report at the end of training needs."""

    def __init__(self, enabled):
        self.enabled = enabled
        self.rows = []

    def add(self, step, loss, states, logits):
        if not self.enabled:
            return
        self.rows.append({"step": step, "loss": loss.item(),
                          "states": states, "logits": logits.detach()})  # HERE

    def report(self):
        conf = [r["logits"].softmax(-1).amax(-1).mean().item() for r in self.rows[-20:]]
        drift = [r["states"].norm(dim=-1).mean().item() for r in self.rows[-20:]]
        return {"confidence": sum(conf) / len(conf), "norm": sum(drift) / len(drift)}


class Tagger(nn.Module):
    def __init__(self, vocab=8000, tags=40, d=512):
        super().__init__()
        self.emb = nn.Embedding(vocab, d)
        self.rnn = nn.GRU(d, d, num_layers=2, batch_first=True, bidirectional=True)
        self.fc = nn.Linear(2 * d, tags)

    def forward(self, x):
        h, _ = self.rnn(self.emb(x))
        return self.fc(h), h


def batches(rank, steps, bs, length, device):
    g = torch.Generator().manual_seed(100 + rank)
    for _ in range(steps):
        x = torch.randint(0, 8000, (bs, length), generator=g)
        yield x.to(device), (x % 40).to(device)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--length", type=int, default=256)
    args = parser.parse_args()

    dist.init_process_group(backend="gloo")
    rank, local = dist.get_rank(), int(os.environ["LOCAL_RANK"])
    device = torch.device("cuda", local % torch.cuda.device_count())
    torch.cuda.set_device(device)
    torch.manual_seed(0)

    model = DistributedDataParallel(Tagger().to(device), device_ids=[device.index])
    optim = torch.optim.Adam(model.parameters(), lr=1e-3)
    ce = nn.CrossEntropyLoss()
    recorder = Recorder(enabled=rank == 0)
    window = collections.deque(maxlen=20)

    for step, (x, y) in enumerate(batches(rank, args.steps, args.batch_size, args.length, device)):
        logits, states = model(x)
        loss = ce(logits.flatten(0, 1), y.flatten())
        optim.zero_grad(set_to_none=True)
        loss.backward()
        optim.step()
        recorder.add(step, loss, states, logits)
        window.append(loss.item())
        if rank == 0 and step % 10 == 0:
            print(f"step {step:4d} loss {sum(window) / len(window):.4f}", flush=True)

    if rank == 0:
        print(recorder.report())
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
