"""Stateful LSTM over long event tracks, one optimizer update per track."""
import torch
from torch import nn

VOCAB, BATCH, CHUNK = 388, 32, 128


class EventLSTM(nn.Module):
    def __init__(self, emb=256, hid=512):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, emb)
        self.rnn = nn.LSTM(emb, hid, num_layers=2, batch_first=True)
        self.fc = nn.Linear(hid, VOCAB)

    def forward(self, tok, state=None):
        h, state = self.rnn(self.emb(tok), state)
        return self.fc(h), state


def make_track(n_chunks):
    steps = torch.randint(-6, 7, (BATCH, n_chunks * CHUNK + 1)).cumsum(1)
    return steps.remainder(VOCAB)


net = EventLSTM().cuda()
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
ce = nn.CrossEntropyLoss()

# short tracks first, symphonies at the end
lengths = [2] * 60 + [4] * 40 + [6] * 30 + [200] * 4
for n, n_chunks in enumerate(lengths):
    track = make_track(n_chunks)
    state, track_loss = None, 0.0
    opt.zero_grad(set_to_none=True)
    for c in range(n_chunks):
        seg = track[:, c * CHUNK:(c + 1) * CHUNK + 1].cuda()
        logits, state = net(seg[:, :-1], state)  # HERE
        loss = ce(logits.reshape(-1, VOCAB), seg[:, 1:].reshape(-1)) / n_chunks
        loss.backward(retain_graph=True)  # HERE
        track_loss += loss.item()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    opt.step()
    if n % 10 == 0:
        print(f"track {n:4d} ({n_chunks} chunks) loss {track_loss:.3f}", flush=True)
