import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset
from transformers import BertConfig, BertForSequenceClassification

ACCUM = 16
MICRO = 8
SEQ = 256


def get_loader(n=1024):
    torch.manual_seed(7)
    ids = torch.randint(5, 8000, (n, SEQ))
    labels = (ids.sum(1) % 3).long()
    return DataLoader(TensorDataset(ids, labels), batch_size=MICRO, shuffle=True)


def get_model():
    cfg = BertConfig(vocab_size=8000, hidden_size=512, num_hidden_layers=6,
                     num_attention_heads=8, intermediate_size=2048, num_labels=3)
    return BertForSequenceClassification(cfg)


def train():
    accelerator = Accelerator()
    model = get_model()
    opt = torch.optim.AdamW(model.parameters(), lr=3e-5)
    loader = get_loader()
    model, opt, loader = accelerator.prepare(model, opt, loader)
    model.train()

    accelerator.print(f"micro batch {MICRO}, accumulate {ACCUM}, effective {MICRO * ACCUM}")
    window_loss = 0.0
    updates = 0
    for step, (ids, labels) in enumerate(loader, start=1):
        out = model(input_ids=ids, labels=labels)
        window_loss = window_loss + out.loss / ACCUM  # HERE
        if step % ACCUM == 0:
            accelerator.backward(window_loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            opt.zero_grad()
            updates += 1
            accelerator.print(f"update {updates}: loss {window_loss.item():.4f}")
            window_loss = 0.0
    accelerator.print("done")


if __name__ == "__main__":
    train()
