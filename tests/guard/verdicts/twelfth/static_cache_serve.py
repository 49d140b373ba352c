"""Answer a batch of prompts with a small Llama and a preallocated (static) key/value cache."""
import time

import torch
from transformers import LlamaConfig, LlamaForCausalLM, StaticCache

USERS = 16
MAX_CONTEXT = 16_384  # HERE
PROMPT, NEW_TOKENS = 32, 48


def build_model(device):
    config = LlamaConfig(vocab_size=8000, hidden_size=1024, intermediate_size=2816, num_hidden_layers=16,
                         num_attention_heads=16, num_key_value_heads=16,
                         max_position_embeddings=MAX_CONTEXT)
    config._attn_implementation = "sdpa"
    with torch.device(device):
        model = LlamaForCausalLM(config)
    return model.to(torch.bfloat16).eval()


class Server:
    def __init__(self, device="cuda"):
        self.device = device
        self.model = build_model(device)
        weights = sum(p.numel() * p.element_size() for p in self.model.parameters())
        print(f"weights {weights / 2 ** 20:.0f} MiB", flush=True)

    def warm_up(self):
        """One forward without a cache."""
        self.model(torch.zeros(USERS, PROMPT, dtype=torch.long, device=self.device), use_cache=False)

    @torch.inference_mode()
    def answer(self, prompts, n_new):
        cache = StaticCache(config=self.model.config, max_cache_len=MAX_CONTEXT)  # HERE
        ids, pieces = prompts.to(self.device), []
        start = 0
        for _ in range(n_new):
            positions = torch.arange(start, start + ids.shape[1], device=self.device)
            out = self.model(ids, past_key_values=cache, position_ids=positions[None].expand(len(ids), -1),
                             use_cache=True, logits_to_keep=1)
            start += ids.shape[1]
            ids = out.logits[:, -1:].argmax(-1)
            pieces.append(ids.cpu())
        return torch.cat(pieces, 1)


def main():
    torch.manual_seed(0)
    server = Server()
    with torch.inference_mode():
        server.warm_up()
    print("warm", flush=True)
    for turn in range(5):
        prompts = torch.randint(0, 8000, (USERS, PROMPT))
        t0 = time.time()
        reply = server.answer(prompts, NEW_TOKENS)
        print(f"turn {turn}: {reply.numel()} tokens in {time.time() - t0:.2f} s", flush=True)


if __name__ == "__main__":
    main()
