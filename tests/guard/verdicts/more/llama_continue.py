"""Continued pre-training of a small Llama on in-house text (synthetic here).

Gradient checkpointing is on: without it batch 8 x 1024 does not fit our card.
"""
import math
import time

import torch
from torch.utils.data import DataLoader, Dataset
from transformers import LlamaConfig, LlamaForCausalLM, get_cosine_schedule_with_warmup

SEQ = 1024
BATCH = 8
VOCAB = 8000
EPOCHS = 3
STEPS_PER_EPOCH = 20


class PackedText(Dataset):
    def __init__(self, n, seed):
        self.n, self.seed = n, seed

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(self.seed + i)
        start = torch.randint(VOCAB, (1,), generator=g)
        steps = torch.randint(0, 7, (SEQ,), generator=g).cumsum(0)
        return (start + steps) % VOCAB


def build_model():
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=768,
        intermediate_size=2048,
        num_hidden_layers=16,
        num_attention_heads=12,
        num_key_value_heads=12,
        max_position_embeddings=SEQ,
        use_cache=False,
    )
    model = LlamaForCausalLM(config)
    model.gradient_checkpointing_enable()
    model.train()
    return model


@torch.no_grad()
def perplexity(model, loader, device):
    model.eval()  # HERE
    total, count = 0.0, 0
    for ids in loader:
        ids = ids.to(device)
        total += model(input_ids=ids, labels=ids).loss.item()
        count += 1
    return math.exp(total / count)


def main():
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    model = build_model().to(device)
    print(f"{model.num_parameters() / 1e6:.0f}M parameters")

    train_loader = DataLoader(PackedText(BATCH * STEPS_PER_EPOCH, 0), batch_size=BATCH, shuffle=True)
    valid_loader = DataLoader(PackedText(4 * BATCH, 10**6), batch_size=BATCH)

    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1)
    total_steps = EPOCHS * len(train_loader)
    scheduler = get_cosine_schedule_with_warmup(optimizer, total_steps // 10, total_steps)

    step = 0
    for epoch in range(EPOCHS):
        t0 = time.time()
        for ids in train_loader:
            ids = ids.to(device)
            out = model(input_ids=ids, labels=ids)  # HERE
            out.loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            if step % 5 == 0:
                print(f"step {step} loss {out.loss.item():.3f} lr {scheduler.get_last_lr()[0]:.2e}", flush=True)
            step += 1
            del out
        ppl = perplexity(model, valid_loader, device)
        print(f"epoch {epoch}: valid ppl {ppl:.1f}, {time.time() - t0:.1f}s", flush=True)


if __name__ == "__main__":
    main()
