"""Streaming speech encoder: 64 live audio streams, chunk by chunk, with limited left context."""
import torch
import torch.nn.functional as F
from torch import nn

STREAMS, CHUNK, LEFT = 64, 64, 256
DIM, HEADS, LAYERS, MEL, TOKENS = 512, 8, 8, 80, 1000
dev, dtype = "cuda", torch.float16


class StreamingLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.qkv, self.out = nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, DIM)
        self.ff = nn.Sequential(nn.Linear(DIM, 4 * DIM), nn.SiLU(), nn.Linear(4 * DIM, DIM))

    def forward(self, x, state):
        q, k, v = self.qkv(self.norm1(x)).chunk(3, -1)
        if state:
            k = torch.cat([state["k"], k], dim=1)  # HERE
            v = torch.cat([state["v"], v], dim=1)  # HERE
        state["k"], state["v"] = k, v  # HERE
        k, v = k[:, -(LEFT + CHUNK):], v[:, -(LEFT + CHUNK):]
        q, k, v = (t.unflatten(-1, (HEADS, -1)).transpose(1, 2) for t in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        return x + self.ff(self.norm2(x))


class Transcriber(nn.Module):
    def __init__(self):
        super().__init__()
        self.front = nn.Linear(MEL, DIM)
        self.layers = nn.ModuleList(StreamingLayer() for _ in range(LAYERS))
        self.ctc = nn.Linear(DIM, TOKENS)

    def new_state(self):
        return [{} for _ in self.layers]

    def forward(self, mel, state):
        x = self.front(mel)
        for layer, s in zip(self.layers, state):
            x = layer(x, s)
        return self.ctc(x)


@torch.inference_mode()
def main():
    torch.manual_seed(0)
    model = Transcriber().to(dev, dtype).eval()
    state = model.new_state()
    emitted = torch.zeros(STREAMS, dtype=torch.long, device=dev)
    for chunk in range(600):
        mel = torch.randn(STREAMS, CHUNK, MEL, device=dev, dtype=dtype)
        best = model(mel, state).argmax(-1)
        emitted += (best[:, 1:] != best[:, :-1]).sum(1)
        if chunk % 10 == 0:
            print(f"{chunk * CHUNK / 100:.1f} s of audio, {emitted.float().mean().item():.0f} tokens a stream",
                  flush=True)


if __name__ == "__main__":
    main()
