"""Throughput of a small llama on independent chat sessions (random weights)."""
import time
import torch
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

cfg = LlamaConfig(
    vocab_size=32000,
    hidden_size=1024,
    intermediate_size=2816,
    num_hidden_layers=16,
    num_attention_heads=16,
    num_key_value_heads=16,
    max_position_embeddings=65536,
)


@torch.inference_mode()
def answer(model, prompt, cache, n_new):
    out = model(input_ids=prompt, past_key_values=cache, use_cache=True, logits_to_keep=1)
    tok = out.logits[:, -1].argmax(-1, keepdim=True)
    reply = [tok]
    for _ in range(n_new - 1):
        out = model(input_ids=tok, past_key_values=cache, use_cache=True, logits_to_keep=1)
        tok = out.logits[:, -1].argmax(-1, keepdim=True)
        reply.append(tok)
    return torch.cat(reply, 1)


def main(sessions=60, batch=32, prompt_len=256, n_new=16):
    device = torch.device("cuda")
    model = LlamaForCausalLM(cfg).to(device, torch.bfloat16).eval()
    cache = DynamicCache(config=cfg)  # HERE
    for s in range(sessions):
        prompt = torch.randint(0, cfg.vocab_size, (batch, prompt_len), device=device)
        t0 = time.time()
        reply = answer(model, prompt, cache, n_new)
        print(f"session {s}: {reply.numel() / (time.time() - t0):.0f} tok/s", flush=True)


main()
