"""Symbolic music model: an LSTM over long event streams, read in chunks.

One optimiser step per piece; the state is carried from chunk to chunk so the
model can remember the key and the tempo.
"""
import lightning as L
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

N_EVENTS = 388


class Pieces(Dataset):
    def __init__(self, n_pieces=640, length=6144):
        self.n, self.length = n_pieces, length

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(1000 + i)
        motif = torch.randint(0, N_EVENTS, (96,), generator=g)
        events = motif.repeat(self.length // 96 + 1)[: self.length + 1].clone()
        noise = torch.rand(self.length + 1, generator=g) < 0.1
        events[noise] = torch.randint(0, N_EVENTS, (int(noise.sum()),), generator=g)
        return events


class EventLSTM(nn.Module):
    def __init__(self, width=1024, layers=2):
        super().__init__()
        self.emb = nn.Embedding(N_EVENTS, 256)
        self.rnn = nn.LSTM(256, width, layers, batch_first=True)
        self.head = nn.Linear(width, N_EVENTS)

    def forward(self, x, state=None):
        y, state = self.rnn(self.emb(x), state)
        return self.head(y), state


class MusicModule(L.LightningModule):
    def __init__(self, chunk=64, lr=3e-4):
        super().__init__()
        self.automatic_optimization = False
        self.save_hyperparameters()
        self.model = EventLSTM()

    def training_step(self, events, batch_idx):
        opt = self.optimizers()
        opt.zero_grad()
        inputs, targets = events[:, :-1], events[:, 1:]
        n = inputs.size(1) // self.hparams.chunk
        state, total = None, 0.0
        for k, (x, y) in enumerate(zip(inputs.chunk(n, 1), targets.chunk(n, 1))):
            logits, state = self.model(x, state)  # HERE
            loss = F.cross_entropy(logits.flatten(0, 1), y.flatten())
            # "Trying to backward through the graph a second time" otherwise
            self.manual_backward(loss / n, retain_graph=True)  # HERE
            total += loss.item()
            if k % 10 == 0:
                print(f"piece batch {batch_idx} chunk {k}/{n} loss {loss.item():.3f}", flush=True)
        nn.utils.clip_grad_norm_(self.parameters(), 1.0)
        opt.step()
        self.log("nll", total / n, prog_bar=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.hparams.lr)


def main():
    torch.set_float32_matmul_precision("high")
    L.seed_everything(5)
    loader = DataLoader(Pieces(), batch_size=32, num_workers=2)
    trainer = L.Trainer(accelerator="gpu", devices=1, max_epochs=1, logger=False,
                        enable_checkpointing=False)
    trainer.fit(MusicModule(), loader)


if __name__ == "__main__":
    main()
