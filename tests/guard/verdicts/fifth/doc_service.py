"""Offline run of a document classification service over a queue of requests."""
import random
import torch
import torch.nn as nn

random.seed(2)
torch.manual_seed(2)
DIM, SEQ, LABELS = 1024, 512, ["invoice", "contract", "letter", "report"]


class Service:
    def __init__(self):
        layer = nn.TransformerEncoderLayer(DIM, 8, 2048, batch_first=True, norm_first=True)
        self.emb = nn.Embedding(20_000, DIM).cuda().eval()
        self.enc = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False).cuda().eval()
        self.head = nn.Linear(DIM, len(LABELS)).cuda().eval()

    @torch.no_grad()
    def handle(self, request):
        tokens = torch.tensor(request["tokens"]).cuda()
        hidden = self.enc(self.emb(tokens))
        pooled = hidden.mean(1)
        names = [LABELS[i] for i in self.head(pooled).argmax(1).tolist()]
        return self.package(request, hidden, names)

    def package(self, request, hidden, names):
        norms = hidden.norm(dim=-1)
        result = []
        for doc_id, name, row in zip(request["doc_ids"], names, norms):
            if not doc_id.isdigit():
                raise ValueError(f"bad document id {doc_id!r}")
            result.append({"id": int(doc_id), "label": name, "focus": int(row.argmax())})
        return result


def request_queue(n, batch=32):
    for r in range(n):
        ids = [str(random.randrange(10 ** 6)) for _ in range(batch)]
        if random.random() < 0.15:
            ids[random.randrange(batch)] = "N/A"
        yield {"id": r, "doc_ids": ids,
               "tokens": [random.choices(range(20_000), k=SEQ) for _ in range(batch)]}


service = Service()
done, rejected = 0, []
for request in request_queue(4000):
    try:
        done += len(service.handle(request))
    except ValueError as err:
        rejected.append((request["id"], err))  # HERE
    if request["id"] % 20 == 0:
        print(f"request {request['id']}: {done} documents, {len(rejected)} rejected", flush=True)

for rid, err in rejected:
    print(f"request {rid} was rejected: {err}")
