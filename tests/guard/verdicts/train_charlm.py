"""Character language model on one long stream of text, state carried from chunk to chunk."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(7)
device = torch.device("cuda")
vocab, hidden, layers = 128, 1024, 2
batch, chunk, accumulate = 64, 64, 100


class CharLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(vocab, hidden)
        self.rnn = nn.LSTM(hidden, hidden, num_layers=layers, batch_first=True)
        self.out = nn.Linear(hidden, vocab)

    def forward(self, tokens, state):
        y, state = self.rnn(self.embed(tokens), state)
        return self.out(y), state


stream = torch.randint(0, vocab, (batch, chunk * 400 + 1))
model = CharLM().to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
state = (
    torch.zeros(layers, batch, hidden, device=device),
    torch.zeros(layers, batch, hidden, device=device),
)

for step in range(400):
    start = step * chunk
    tokens = stream[:, start : start + chunk].to(device)
    target = stream[:, start + 1 : start + chunk + 1].to(device)
    logits, state = model(tokens, state)  # HERE
    loss = F.cross_entropy(logits.reshape(-1, vocab), target.reshape(-1)) / accumulate
    loss.backward(retain_graph=True)  # HERE
    print(f"chunk {step}: bpc {loss.item() * accumulate / 0.6931:.3f}", flush=True)
    if (step + 1) % accumulate == 0:
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        state = tuple(s.detach() for s in state)
