import argparse
import json
import time

import torch
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

"""Sample several candidate answers per prompt for best-of-n reranking."""


def get_args():
    p = argparse.ArgumentParser()
    p.add_argument("--prompts", type=int, default=32)
    p.add_argument("--prompt-len", type=int, default=64)
    p.add_argument("--batch", type=int, default=16)
    p.add_argument("--n", type=int, default=8, help="candidates per prompt")
    p.add_argument("--max-new-tokens", type=int, default=1024)
    p.add_argument("--temperature", type=float, default=0.8)
    p.add_argument("--out", default="/tmp/candidates.jsonl")
    return p.parse_args()


def make_model(device):
    cfg = LlamaConfig(vocab_size=32000, hidden_size=1024, intermediate_size=2816,
                      num_hidden_layers=16, num_attention_heads=16,
                      num_key_value_heads=16, max_position_embeddings=4096)
    model = LlamaForCausalLM(cfg).to(torch.bfloat16)
    return model.to(device).eval()


def sample(model, prompts, args):
    gen = GenerationConfig(do_sample=True, temperature=args.temperature, top_k=50,
                           num_return_sequences=args.n,  # HERE
                           max_new_tokens=args.max_new_tokens,  # HERE
                           eos_token_id=None, pad_token_id=0)
    with torch.inference_mode():
        mask = torch.ones_like(prompts)
        seqs = model.generate(input_ids=prompts, attention_mask=mask, generation_config=gen)
    return seqs[:, prompts.size(1):].view(prompts.size(0), args.n, -1).cpu()


def main():
    args = get_args()
    device = "cuda"
    torch.manual_seed(0)
    model = make_model(device)
    print(f"model ready, {sum(p.numel() for p in model.parameters()) / 1e6:.0f}M params, bf16")
    prompts = torch.randint(5, 32000, (args.prompts, args.prompt_len), device=device)
    with open(args.out, "w") as f:
        for lo in range(0, args.prompts, args.batch):
            t = time.time()
            cands = sample(model, prompts[lo:lo + args.batch], args)
            for i, c in enumerate(cands):
                f.write(json.dumps({"prompt": lo + i, "candidates": c.tolist()}) + "\n")
            print(f"prompts {lo}..{lo + len(cands) - 1}: {cands.numel()} tokens "
                  f"in {time.time() - t:.1f}s", flush=True)


if __name__ == "__main__":
    main()
