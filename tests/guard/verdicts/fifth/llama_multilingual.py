"""Pretrain a tiny Llama with the vocabulary of a multilingual tokenizer."""
import time
import torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
SEQ, BATCH, STEPS = 1024, 4, 300

config = LlamaConfig(
    vocab_size=256_000,  # HERE
    hidden_size=256,
    intermediate_size=688,
    num_hidden_layers=6,
    num_attention_heads=4,
    num_key_value_heads=4,
    max_position_embeddings=SEQ,
    tie_word_embeddings=True,
    use_cache=False,
)
model = LlamaForCausalLM(config).to("cuda")
print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.1f}M parameters")
optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, betas=(0.9, 0.95), weight_decay=0.1)


def token_stream():
    # four "languages", each with its own block of the vocabulary
    block = config.vocab_size // 4
    while True:
        lang = torch.randint(0, 4, (BATCH, 1))
        u = torch.rand(BATCH, SEQ)
        yield (lang * block + (block * u ** 4).long()).clamp(max=config.vocab_size - 1)


start = time.time()
for step, ids in zip(range(STEPS), token_stream()):
    ids = ids.to("cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        out = model(input_ids=ids, labels=ids)  # HERE
    out.loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if step % 10 == 0:
        tps = (step + 1) * BATCH * SEQ / (time.time() - start)
        print(f"step {step} loss {out.loss.item():.3f} {tps:.0f} tok/s", flush=True)
