"""Sample completions for a set of prompts and report the mean confidence of each batch."""
import time

import torch
from transformers import LlamaConfig, LlamaForCausalLM

DEVICE = "cuda"


def build():
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=32000, hidden_size=1024, intermediate_size=2048,
        num_hidden_layers=8, num_attention_heads=16, num_key_value_heads=16,
        max_position_embeddings=1024,
    )
    return LlamaForCausalLM(config).to(torch.bfloat16).to(DEVICE).eval()


def prompts(n_batches, batch_size, length):
    g = torch.Generator().manual_seed(11)
    for _ in range(n_batches):
        yield torch.randint(3, 32000, (batch_size, length), generator=g)


def confidence(out):
    probs = [s.softmax(-1).max(-1).values.mean() for s in out.scores]
    return torch.stack(probs).mean().item()


@torch.inference_mode()
def run():
    model = build()
    completions = []
    for i, ids in enumerate(prompts(n_batches=16, batch_size=32, length=384)):
        t0 = time.time()
        ids = ids.to(DEVICE)
        out = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=True,
            max_new_tokens=96,
            min_new_tokens=96,
            pad_token_id=0,
            return_dict_in_generate=True,
            output_scores=True,
        )
        completions.append(out)  # HERE
        print(f"batch {i:2d}: confidence {confidence(out):.4f}  {time.time() - t0:.1f}s", flush=True)

    total = sum(c.sequences.shape[0] for c in completions)
    print(f"{total} completions")
    print(completions[0].sequences[0, -20:].tolist())


if __name__ == "__main__":
    run()
