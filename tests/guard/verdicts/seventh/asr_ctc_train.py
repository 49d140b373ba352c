"""CTC acoustic model (transformer encoder over log-mel frames)."""
import argparse
import logging
import sys

import torch
import torch.nn as nn

log = logging.getLogger("asr")


class Subsample(nn.Module):
    def __init__(self, n_mels, d_model):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv1d(n_mels, d_model, 3, stride=2, padding=1), nn.GELU())

    def forward(self, feats):
        return self.conv(feats.transpose(1, 2)).transpose(1, 2)


class CTCModel(nn.Module):
    def __init__(self, n_mels=80, d_model=256, layers=6, vocab=1000):
        super().__init__()
        self.front = Subsample(n_mels, d_model)
        enc = nn.TransformerEncoderLayer(d_model, 4, 4 * d_model, dropout=0.1,
                                         batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(enc, layers, enable_nested_tensor=False)
        self.out = nn.Linear(d_model, vocab)

    def forward(self, feats):
        return self.out(self.encoder(self.front(feats)))


class FakeSpeech(torch.utils.data.Dataset):
    def __init__(self, n, frames=800, n_mels=80, vocab=1000, seed=0):
        g = torch.Generator().manual_seed(seed)
        self.n, self.frames, self.n_mels = n, frames, n_mels
        self.text = torch.randint(1, vocab, (n, 40), generator=g)

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        return torch.randn(self.frames, self.n_mels, generator=g), self.text[i]


def greedy(logits):
    hyp = []
    for path in logits.argmax(-1).tolist():
        out, prev = [], 0
        for t in path:
            if t != prev and t != 0:
                out.append(t)
            prev = t
        hyp.append(out)
    return hyp


def edit_distance(a, b):
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        prev, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            prev, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, prev + (x != y))
    return row[-1]


def build_steps(model, criterion, optimizer, device):
    def forward(batch):
        feats, text = (t.to(device, non_blocking=True) for t in batch)
        logits = model(feats)
        logp = logits.log_softmax(-1).transpose(0, 1)
        n = feats.size(0)
        in_len = torch.full((n,), logp.size(0), dtype=torch.long)
        tgt_len = torch.full((n,), text.size(1), dtype=torch.long)
        return criterion(logp, text, in_len, tgt_len), logits

    def train_step(batch):
        model.train()
        loss, _ = forward(batch)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        return loss.item()

    def eval_step(batch):
        model.eval()
        return forward(batch)

    return train_step, eval_step


def validate(eval_step, loader):
    total, outputs, refs = 0.0, [], []
    for batch in loader:
        loss, logits = eval_step(batch)
        total += loss.item()
        outputs.append(logits)  # HERE
        refs.extend(batch[1].tolist())
    hyps = greedy(torch.cat(outputs))
    errs = sum(edit_distance(h, r) for h, r in zip(hyps, refs))
    return total / len(loader), errs / sum(len(r) for r in refs)


def main(argv=None):
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=5)
    ap.add_argument("--batch-size", type=int, default=16)
    ap.add_argument("--train-utts", type=int, default=960)
    ap.add_argument("--valid-utts", type=int, default=800)
    ap.add_argument("--lr", type=float, default=3e-4)
    args = ap.parse_args(argv)
    logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(name)s | %(message)s")

    device = torch.device("cuda")
    model = CTCModel().to(device)
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr)
    criterion = nn.CTCLoss(zero_infinity=True)
    DL = torch.utils.data.DataLoader
    train = DL(FakeSpeech(args.train_utts), args.batch_size, shuffle=True, pin_memory=True)
    valid = DL(FakeSpeech(args.valid_utts, seed=9), args.batch_size, pin_memory=True)
    train_step, eval_step = build_steps(model, criterion, opt, device)
    for epoch in range(args.epochs):
        for i, batch in enumerate(train):
            loss = train_step(batch)
            if i % 20 == 0:
                log.info("epoch %d it %d loss %.3f", epoch, i, loss)
        vloss, cer = validate(eval_step, valid)
        log.info("epoch %d valid loss %.3f cer %.3f", epoch, vloss, cer)


if __name__ == "__main__":
    main()
