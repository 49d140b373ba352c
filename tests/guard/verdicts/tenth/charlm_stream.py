"""Character LSTM over one long stream, state carried from chunk to chunk."""
import time

import torch
import torch.nn as nn

vocab = 96
hidden = 512
batch = 64
chunk = 64
update_every = 100      # chunks per optimizer step
total_chunks = 300
device = "cuda"


class CharLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(vocab, 128)
        self.lstm = nn.LSTM(128, hidden, num_layers=2, batch_first=True)
        self.out = nn.Linear(hidden, vocab)

    def forward(self, x, state=None):
        y, state = self.lstm(self.embed(x), state)
        return self.out(y), state


def stream(n_chunks):
    """Yields (input, target) of the next `chunk` characters of each of `batch` books."""
    gen = torch.Generator().manual_seed(0)
    last = torch.randint(0, vocab, (batch, 1), generator=gen)
    for _ in range(n_chunks):
        steps = torch.randint(-2, 3, (batch, chunk), generator=gen)
        nxt = (last + steps.cumsum(1)) % vocab
        full = torch.cat([last, nxt], 1)
        yield full[:, :-1].to(device), full[:, 1:].to(device)
        last = nxt[:, -1:]


def train():
    torch.manual_seed(0)
    net = CharLM().to(device)
    optim = torch.optim.Adam(net.parameters(), lr=2e-3)
    criterion = nn.CrossEntropyLoss()
    state = None
    started = time.time()
    avg = None
    for i, (x, y) in enumerate(stream(total_chunks)):
        logits, state = net(x, state)  # HERE
        loss = criterion(logits.flatten(0, 1), y.flatten()) / update_every
        loss.backward(retain_graph=True)  # HERE
        value = loss.item() * update_every
        avg = value if avg is None else 0.95 * avg + 0.05 * value
        if (i + 1) % update_every == 0:
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optim.step()
            optim.zero_grad()
        if i % 5 == 0:
            print("chunk %4d | loss %.3f | %.1fs" % (i, avg, time.time() - started), flush=True)
    torch.save(net.state_dict(), "/tmp/charlm.pt")


if __name__ == "__main__":
    train()
