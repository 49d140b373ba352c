"""Generate a continuation for two very long documents with a Llama-style decoder."""
import time

import torch
from transformers import LlamaConfig, LlamaForCausalLM

CONTEXT = 32_768


def build_model():
    config = LlamaConfig(
        vocab_size=32_000,
        hidden_size=1024,
        intermediate_size=2048,
        num_hidden_layers=16,
        num_attention_heads=16,
        num_key_value_heads=16,
        max_position_embeddings=40_000,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
    )
    return LlamaForCausalLM(config).to(torch.bfloat16).eval()


def load_books(count, length):
    generator = torch.Generator().manual_seed(451)
    return torch.randint(3, 32_000, (count, length), generator=generator)


@torch.inference_mode()
def main():
    torch.manual_seed(0)
    device = "cuda"
    model = build_model().to(device)
    print(f"model ready: {model.num_parameters() / 1e6:.0f}M parameters", flush=True)

    for length in (1024, 4096, CONTEXT):
        books = load_books(2, length).to(device)
        start = time.perf_counter()
        output = model.generate(  # HERE
            input_ids=books,
            attention_mask=torch.ones_like(books),
            max_new_tokens=16,
            do_sample=False,
        )
        seconds = time.perf_counter() - start
        print(f"context {length}: {output.shape[1] - length} new tokens in {seconds:.2f}s", flush=True)


if __name__ == "__main__":
    main()
