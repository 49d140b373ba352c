"""Train a sentence scorer; labels come from a judge model that runs as a service."""
import argparse
import multiprocessing as mp

import torch
import torch.nn as nn
import torch.nn.functional as F


def encoder(dim, depth, heads):
    layer = nn.TransformerEncoderLayer(dim, heads, 4 * dim, dropout=0.0, batch_first=True,
                                       norm_first=True)
    return nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)


class Scorer(nn.Module):
    def __init__(self, vocab, dim, depth, heads):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.enc = encoder(dim, depth, heads)
        self.out = nn.Linear(dim, 1)

    def forward(self, ids):
        return self.out(self.enc(self.emb(ids)).mean(1)).squeeze(-1)


def judge_loop(conn, vocab):
    """Answers batches of token ids with scores until it gets None."""
    torch.manual_seed(1)
    judge = Scorer(vocab, 1536, 22, 16).cuda().eval()
    conn.send("ready")
    with torch.inference_mode():
        while (ids := conn.recv()) is not None:
            conn.send(torch.sigmoid(judge(torch.from_numpy(ids).cuda())).cpu().numpy())


class Judge:
    def __init__(self, vocab):
        ctx = mp.get_context("spawn")
        self.conn, child = ctx.Pipe()
        self.proc = ctx.Process(target=judge_loop, args=(child, vocab), daemon=True)
        self.proc.start()  # HERE
        assert self.conn.recv() == "ready"

    def __call__(self, ids):
        self.conn.send(ids.numpy())
        return torch.from_numpy(self.conn.recv())

    def close(self):
        self.conn.send(None)
        self.proc.join()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--vocab", type=int, default=16000)
    ap.add_argument("--batch", type=int, default=8)
    ap.add_argument("--length", type=int, default=128)
    ap.add_argument("--steps", type=int, default=200)
    args = ap.parse_args()
    torch.manual_seed(0)
    judge = Judge(args.vocab)
    print("judge is up, pid", judge.proc.pid, flush=True)

    model = Scorer(args.vocab, 768, 12, 12).cuda()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for step in range(args.steps):
        ids = torch.randint(0, args.vocab, (args.batch, args.length))
        target = judge(ids).cuda()
        loss = F.binary_cross_entropy_with_logits(model(ids.cuda()), target)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    judge.close()


if __name__ == "__main__":
    main()
