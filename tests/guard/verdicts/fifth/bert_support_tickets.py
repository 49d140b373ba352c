import torch
from torch.utils.data import DataLoader
from transformers import BertConfig, BertForSequenceClassification, get_linear_schedule_with_warmup

torch.manual_seed(5)
VOCAB = 12000


def make_tickets(n):
    """Most tickets are a paragraph, now and then somebody pastes a whole log file."""
    lengths = torch.distributions.LogNormal(4.6, 0.4).sample((n,)).long().clamp(16, 400)
    lengths[torch.arange(700, n, 900)] = 4096
    rows = []
    for L in lengths.tolist():
        y = int(torch.randint(0, 3, (1,)))
        ids = torch.randint(10, VOCAB, (L,))
        ids[torch.rand(L) < 0.1] = 3 + y
        rows.append((ids, y))
    return rows


def collate(batch):
    ids = torch.nn.utils.rnn.pad_sequence([b[0] for b in batch], batch_first=True)  # HERE
    return {"input_ids": ids, "attention_mask": (ids != 0).long(),
            "labels": torch.tensor([b[1] for b in batch])}


config = BertConfig(vocab_size=VOCAB, hidden_size=256, num_hidden_layers=6, num_attention_heads=4,
                    intermediate_size=1024, max_position_embeddings=4096, num_labels=3)
model = BertForSequenceClassification(config).cuda().train()
tickets = make_tickets(6400)
loader = DataLoader(tickets, batch_size=16, collate_fn=collate)
opt = torch.optim.AdamW(model.parameters(), lr=1e-4)
sched = get_linear_schedule_with_warmup(opt, 50, 3 * len(loader))

for epoch in range(3):
    for step, batch in enumerate(loader):
        batch = {k: v.cuda(non_blocking=True) for k, v in batch.items()}
        out = model(**batch)
        out.loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        opt.zero_grad()
        if step % 10 == 0:
            acc = (out.logits.argmax(-1) == batch["labels"]).float().mean().item()
            print(f"epoch {epoch} step {step} loss {out.loss.item():.3f} acc {acc:.2f}", flush=True)
