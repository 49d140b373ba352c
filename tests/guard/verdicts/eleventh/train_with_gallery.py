"""Train an embedding model; a helper process answers nearest-neighbour look-ups for hard negatives."""
import torch
import torch.multiprocessing as mp
from torch import nn

DIM = 512


def gallery_service(requests, replies, ready):
    gallery = torch.randn(1_600_000, DIM, device="cuda")  # HERE
    ready.set()
    while True:
        query = requests.get()
        if query is None:
            break
        scores = query.to("cuda") @ gallery.T
        replies.put(scores.topk(4, dim=1).indices.cpu())
        del scores


class Embedder(nn.Module):
    def __init__(self, width=2048, depth=8):
        super().__init__()
        self.inp = nn.Linear(DIM, width)
        self.mid = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.out = nn.Linear(width, DIM)

    def forward(self, x):
        x = torch.relu(self.inp(x))
        for layer in self.mid:
            x = torch.relu(layer(x))
        return nn.functional.normalize(self.out(x), dim=-1)


def main():
    ctx = mp.get_context("spawn")
    requests, replies, ready = ctx.Queue(), ctx.Queue(), ctx.Event()
    helper = ctx.Process(target=gallery_service, args=(requests, replies, ready), daemon=True)
    helper.start()  # HERE
    ready.wait(60)
    print("gallery is up", flush=True)

    model = Embedder().cuda()
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(20):
        x = torch.randn(32768, DIM, device="cuda")
        noisy = x + 0.1 * torch.randn_like(x)
        loss = (1 - (model(noisy) * nn.functional.normalize(x, dim=-1)).sum(-1)).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        requests.put(torch.randn(16, DIM))
        hard = replies.get(timeout=60)
        print(f"step {step}: loss {loss.item():.4f}, first negatives {hard[0].tolist()}", flush=True)
    requests.put(None)
    helper.join(10)


if __name__ == "__main__":
    main()
