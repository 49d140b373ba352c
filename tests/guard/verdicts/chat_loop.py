"""Load test of a chat service: many dialogues at once, turn after turn, cache kept between turns."""
import argparse
import time

import torch
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM


def build_model(args, device):
    config = LlamaConfig(
        vocab_size=4000, hidden_size=512, intermediate_size=1408, num_hidden_layers=args.layers,
        num_attention_heads=8, num_key_value_heads=8, max_position_embeddings=8192,
        bos_token_id=1, eos_token_id=2, pad_token_id=0,
    )
    model = LlamaForCausalLM(config).to(torch.bfloat16).to(device)
    return model.eval()


class SimulatedUsers:
    """Stands for the people at the other end."""

    def __init__(self, count, vocab, device, seed=8):
        self.count, self.vocab, self.device = count, vocab, device
        self.gen = torch.Generator().manual_seed(seed)

    def speak(self, tokens):
        ids = torch.randint(3, self.vocab, (self.count, tokens), generator=self.gen)
        return ids.to(self.device)


class ChatSession:
    def __init__(self, model):
        self.model = model
        self.cache = DynamicCache()
        self.turns = 0

    def forward(self, ids):
        out = self.model(ids, past_key_values=self.cache, use_cache=True, logits_to_keep=1)
        self.cache = out.past_key_values  # HERE
        return out.logits[:, -1]

    def pick(self, logits, temperature=0.8):
        probs = torch.softmax(logits.float() / temperature, dim=-1)
        return torch.multinomial(probs, 1)

    @torch.inference_mode()
    def reply(self, user_ids, max_new_tokens):
        token = self.pick(self.forward(user_ids))
        answer = [token.cpu()]
        for _ in range(max_new_tokens - 1):
            token = self.pick(self.forward(token))
            answer.append(token.cpu())
        self.turns += 1
        return torch.cat(answer, dim=1)


class Stats:
    def __init__(self):
        self.start, self.tokens = time.time(), 0

    def add(self, answer):
        self.tokens += answer.numel()

    def line(self, turn):
        speed = self.tokens / (time.time() - self.start)
        return f"turn {turn}: {self.tokens} tokens answered, {speed:.0f} tokens/s"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--dialogues", type=int, default=64)
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--turns", type=int, default=200)
    parser.add_argument("--question", type=int, default=64)
    parser.add_argument("--answer", type=int, default=16)
    args = parser.parse_args()
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = build_model(args, device)
    users = SimulatedUsers(args.dialogues, model.config.vocab_size, device)
    session, stats = ChatSession(model), Stats()
    for turn in range(args.turns):
        answer = session.reply(users.speak(args.question), args.answer)
        stats.add(answer)
        print(stats.line(turn), flush=True)


if __name__ == "__main__":
    main()
