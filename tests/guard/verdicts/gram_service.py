"""Gram matrices of embedded documents, one per request; requests have many different lengths."""
import torch
import torch.nn as nn

WIDTH, VOCAB = 1024, 20_000
MAX_ROWS = 786_432


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, WIDTH)

    def forward(self, ids):
        return torch.relu_(self.embed(ids))


def gram(features):
    return (features.t() @ features) / features.size(0)


def documents(count, low, high, seed):
    gen = torch.Generator().manual_seed(seed)
    for _ in range(count):
        rows = int(torch.randint(low, high, (1,), generator=gen))
        yield torch.randint(0, VOCAB, (rows,), generator=gen)


@torch.inference_mode()
def main():
    torch.manual_seed(0)
    encoder = Encoder().cuda().eval()

    features = encoder(torch.randint(0, VOCAB, (MAX_ROWS,)).cuda())
    gram(features)
    del features
    print("warm-up done", flush=True)

    grams, wave = [], []
    for i, ids in enumerate(documents(42, 10_000, 20_000, seed=8)):
        features = encoder(ids.cuda())
        grams.append(gram(features))
        wave.append(features)
    spread = torch.stack([f.std() for f in wave]).mean().item()
    wave.clear()
    del features
    print(f"first wave: {len(grams)} documents, mean spread {spread:.3f}", flush=True)

    for i, ids in enumerate(documents(3, 430_000, 450_000, seed=9)):
        features = encoder(ids.cuda())  # HERE
        grams.append(gram(features))
        del features
        print(f"long document {i}: {len(ids)} rows", flush=True)
    print("gram trace", torch.stack(grams).diagonal(dim1=1, dim2=2).sum().item())


if __name__ == "__main__":
    main()
