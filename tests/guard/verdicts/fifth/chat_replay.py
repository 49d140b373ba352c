"""Replay recorded chat sessions against a decoder and measure tokens per second."""
import time
import torch
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
STREAMS, TURN_LEN, REPLY_LEN, TURNS = 8, 480, 24, 6

cfg = LlamaConfig(vocab_size=32000, hidden_size=1024, intermediate_size=2816, num_hidden_layers=16,
                  num_attention_heads=16, num_key_value_heads=16, max_position_embeddings=65536)
with torch.device("cuda"):
    model = LlamaForCausalLM(cfg).to(torch.bfloat16).eval()


class Assistant:
    def __init__(self, model):
        self.model = model
        self.cache = DynamicCache()  # HERE

    def _forward(self, ids):
        out = self.model(input_ids=ids, past_key_values=self.cache, use_cache=True, logits_to_keep=1)  # HERE
        self.cache = out.past_key_values
        return out.logits[:, -1].float()

    @torch.inference_mode()
    def reply(self, user_ids, temperature=0.8):
        logits = self._forward(user_ids)
        tokens = []
        for _ in range(REPLY_LEN):
            nxt = torch.multinomial(torch.softmax(logits / temperature, -1), 1)
            tokens.append(nxt)
            logits = self._forward(nxt)
        return torch.cat(tokens, dim=1).cpu()


def sessions(n):
    for s in range(n):
        yield s, [torch.randint(0, cfg.vocab_size, (STREAMS, TURN_LEN)) for _ in range(TURNS)]


assistant = Assistant(model)
for sid, turns in sessions(50):
    t0, produced = time.time(), 0
    for turn, user_ids in enumerate(turns):
        answer = assistant.reply(user_ids.cuda())
        produced += answer.numel()
        print(f"session {sid} turn {turn}: {answer[0, :6].tolist()}", flush=True)
    print(f"session {sid}: {produced / (time.time() - t0):.1f} tok/s")
