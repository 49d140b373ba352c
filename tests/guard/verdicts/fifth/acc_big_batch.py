import torch
import torch.nn as nn
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

MICRO, ACCUM, SEQ, VOCAB = 8, 16, 256, 2000


class Encoder(nn.Module):
    def __init__(self, d=512, layers=6):
        super().__init__()
        self.tok = nn.Embedding(VOCAB, d)
        self.pos = nn.Parameter(torch.randn(SEQ, d) * 0.02)
        layer = nn.TransformerEncoderLayer(d, 8, 4 * d, batch_first=True, activation="gelu")
        self.body = nn.TransformerEncoder(layer, layers)
        self.head = nn.Linear(d, VOCAB)

    def forward(self, ids):
        return self.head(self.body(self.tok(ids) + self.pos))


def main():
    accelerator = Accelerator()
    g = torch.Generator().manual_seed(0)
    clean = torch.randint(10, VOCAB, (20_000, SEQ // 4), generator=g).repeat(1, 4)
    masked = clean.clone()
    masked[torch.rand(clean.shape, generator=g) < 0.15] = 1
    loader = DataLoader(TensorDataset(masked, clean), batch_size=MICRO, shuffle=True, drop_last=True)

    model = Encoder()
    opt = torch.optim.AdamW(model.parameters(), lr=3e-4)
    model, opt, loader = accelerator.prepare(model, opt, loader)
    model.train()

    losses, update = [], 0
    for ids, target in loader:
        logits = model(ids)
        where = ids == 1
        losses.append(nn.functional.cross_entropy(logits[where], target[where]))  # HERE
        if len(losses) == ACCUM:
            loss = torch.stack(losses).mean()
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            opt.zero_grad()
            losses.clear()
            update += 1
            accelerator.print(f"update {update} loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
