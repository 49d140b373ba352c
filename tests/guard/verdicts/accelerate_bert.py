"""BERT sentence classifier with Accelerate; large effective batch from micro-batches."""
import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, TensorDataset
from transformers import BertConfig, BertForSequenceClassification

MICRO_BATCH = 16
MICRO_STEPS = 32


def make_loader(count=4096, length=128, vocab=8000, labels=4):
    gen = torch.Generator().manual_seed(77)
    ids = torch.randint(5, vocab, (count, length), generator=gen)
    y = torch.randint(0, labels, (count,), generator=gen)
    return DataLoader(TensorDataset(ids, y), batch_size=MICRO_BATCH, shuffle=True)


def main():
    set_seed(0)
    accelerator = Accelerator()
    config = BertConfig(
        vocab_size=8000,
        hidden_size=512,
        num_hidden_layers=6,
        num_attention_heads=8,
        intermediate_size=2048,
        num_labels=4,
    )
    model = BertForSequenceClassification(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    model, optimizer, loader = accelerator.prepare(model, optimizer, make_loader())

    model.train()
    total_loss = 0.0
    for i, (ids, labels) in enumerate(loader):
        output = model(input_ids=ids, labels=labels)
        total_loss = total_loss + output.loss / MICRO_STEPS  # HERE
        accelerator.print(f"micro step {i} loss {output.loss.item():.4f}", flush=True)
        if (i + 1) % MICRO_STEPS == 0:
            accelerator.backward(total_loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            accelerator.print(f"update {(i + 1) // MICRO_STEPS} loss {total_loss.item():.4f}", flush=True)
            total_loss = 0.0


if __name__ == "__main__":
    main()
