"""Sample answers from a language model and rank them by the entropy of each token.

usage: sample_entropy.py [--prompts N] [--new-tokens N]
"""
import argparse

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

VOCAB = 151936


def load_model(device):
    config = Qwen2Config(
        vocab_size=VOCAB,
        hidden_size=512,
        intermediate_size=1536,
        num_hidden_layers=8,
        num_attention_heads=8,
        num_key_value_heads=2,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
    )
    with torch.device(device):
        model = Qwen2ForCausalLM(config)
    model.generation_config.eos_token_id = None
    model.generation_config.pad_token_id = 0
    return model.eval()


def encode_prompts(n, length=40, seed=0):
    """Random token ids: the tokenizer is not part of this benchmark."""
    gen = torch.Generator().manual_seed(seed)
    return torch.randint(100, 150_000, (n, length), generator=gen)


def token_entropy(scores):
    """scores: tuple of (batch, vocab), one per generated token -> (batch, tokens)"""
    columns = []
    for s in scores:
        logp = torch.log_softmax(s.float(), dim=-1)
        p = logp.exp()
        columns.append(-(p * logp.clamp_min(-1e4)).sum(-1))
    return torch.stack(columns, dim=1)


@torch.inference_mode()
def answer(model, ids, new_tokens):
    out = model.generate(  # HERE
        input_ids=ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=new_tokens,
        do_sample=True,
        temperature=0.8,
        top_k=50,
        return_dict_in_generate=True,
        output_scores=True,  # HERE
        output_logits=True,  # HERE
    )
    raw = token_entropy(out.logits)
    filtered = token_entropy(out.scores)
    return out.sequences[:, ids.shape[1]:], raw, filtered


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--prompts", type=int, default=240)
    parser.add_argument("--batch-size", type=int, default=48)
    parser.add_argument("--new-tokens", type=int, default=384)
    args = parser.parse_args()

    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    model = load_model(device)
    prompts = encode_prompts(args.prompts)

    # short answers first, to see that everything runs
    _, raw, _ = answer(model, prompts[:4].to(device), 4)
    print(f"warm-up: mean entropy {raw.mean().item():.2f} nats", flush=True)

    results = []
    for start in range(0, args.prompts, args.batch_size):
        ids = prompts[start:start + args.batch_size].to(device)
        tokens, raw, filtered = answer(model, ids, args.new_tokens)
        for row in range(len(tokens)):
            results.append((raw[row].mean().item(), filtered[row].mean().item(), start + row))
        print(f"{start + len(tokens)}/{args.prompts} answers", flush=True)

    results.sort()
    for raw_mean, filtered_mean, index in results[:10]:
        print(f"prompt {index}: raw {raw_mean:.3f}, after top-k {filtered_mean:.3f}")


if __name__ == "__main__":
    main()
