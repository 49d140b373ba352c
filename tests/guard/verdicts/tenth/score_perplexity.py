#!/usr/bin/env python
"""Score documents by perplexity under a decoder (Accelerate, one or many GPUs)."""
import argparse
import math
import time

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset
from transformers import AutoModelForCausalLM, LlamaConfig

SIZES = {
    "tiny": dict(hidden_size=512, intermediate_size=1408, num_hidden_layers=8,
                 num_attention_heads=8, num_key_value_heads=8),
    "base": dict(hidden_size=1024, intermediate_size=2816, num_hidden_layers=16,
                 num_attention_heads=16, num_key_value_heads=16),
    "xl": dict(hidden_size=2048, intermediate_size=8192, num_hidden_layers=24,
               num_attention_heads=16, num_key_value_heads=16),
}


def load_model(size, device):
    config = LlamaConfig(vocab_size=32000, max_position_embeddings=2048,
                         use_cache=False, **SIZES[size])
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(config)  # HERE
    return model.eval()


def documents(n, length):
    g = torch.Generator().manual_seed(3)
    return TensorDataset(torch.randint(0, 32000, (n, length), generator=g))


@torch.inference_mode()
def perplexities(model, loader, accelerator):
    out = []
    for i, (ids,) in enumerate(loader):
        logits = model(input_ids=ids).logits
        nll = F.cross_entropy(logits[:, :-1].flatten(0, 1).float(), ids[:, 1:].flatten(),
                              reduction="none").view(ids.size(0), -1).mean(1)
        nll = accelerator.gather_for_metrics(nll)
        out.extend(math.exp(v) for v in nll.tolist())
        if i % 10 == 0:
            accelerator.print(f"[{i:4d}/{len(loader)}] last ppl {out[-1]:.1f}")
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", choices=sorted(SIZES), default="xl")  # HERE
    parser.add_argument("--docs", type=int, default=200)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--batch-size", type=int, default=4)
    args = parser.parse_args()

    accelerator = Accelerator()
    t0 = time.time()
    accelerator.print(f"building model '{args.size}'")
    model = load_model(args.size, accelerator.device)
    n_params = sum(p.numel() for p in model.parameters())
    accelerator.print(f"{n_params / 1e9:.2f}B parameters in {time.time() - t0:.1f}s")

    loader = DataLoader(documents(args.docs, args.length), batch_size=args.batch_size)
    model, loader = accelerator.prepare(model, loader)
    ppl = perplexities(model, loader, accelerator)
    accelerator.print(f"median perplexity {sorted(ppl)[len(ppl) // 2]:.1f}")


if __name__ == "__main__":
    main()
