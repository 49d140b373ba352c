"""Retrieve candidates from a vector index (own process) and rerank them with a cross encoder."""
import torch
import torch.multiprocessing as mp
import torch.nn as nn

N_VEC, VDIM = 1_300_000, 768
DIM, LAYERS, SEQ = 1024, 24, 256


def index_worker(inq, outq):
    vectors = torch.empty(N_VEC, VDIM, device="cuda").normal_()  # HERE
    vectors.div_(vectors.norm(dim=1, keepdim=True))
    outq.put("ready")
    while True:
        q = inq.get()
        if q is None:
            return
        scores, ids = (vectors @ q.cuda()).topk(64)
        outq.put((scores.tolist(), ids.tolist()))


class CrossEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(DIM, 16, 4 * DIM, batch_first=True, dropout=0.0)
        self.emb = nn.Embedding(30_000, DIM)
        self.body = nn.TransformerEncoder(layer, LAYERS)
        self.score = nn.Linear(DIM, 1)

    def forward(self, ids):
        return self.score(self.body(self.emb(ids))[:, 0]).squeeze(-1)


def passages(query_tokens, ids):
    g = torch.Generator().manual_seed(ids[0])
    docs = torch.randint(0, 30_000, (len(ids), SEQ - len(query_tokens)), generator=g)
    return torch.cat([query_tokens.expand(len(ids), -1), docs], dim=1)


def main():
    ctx = mp.get_context("spawn")
    inq, outq = ctx.Queue(), ctx.Queue()
    worker = ctx.Process(target=index_worker, args=(inq, outq), daemon=True)
    worker.start()  # HERE
    print("index:", outq.get(), flush=True)

    with torch.device("cuda"):
        model = CrossEncoder().eval()
    for n in range(500):
        query = torch.randint(0, 30_000, (16,))
        inq.put(torch.nn.functional.normalize(torch.randn(VDIM), dim=0))
        scores, ids = outq.get()
        with torch.inference_mode():
            order = model(passages(query, ids).cuda()).argsort(descending=True).tolist()
        if n % 20 == 0:
            print(f"query {n}: best passage {ids[order[0]]}, index score {scores[0]:.3f}", flush=True)
    inq.put(None)


if __name__ == "__main__":
    main()
