"""Replay a chat traffic trace against a GPT-2 backend with per-session prefix reuse."""
import argparse
import logging
import time
from dataclasses import dataclass, field

import numpy as np
import torch
from transformers import GPT2Config, GPT2LMHeadModel

logger = logging.getLogger("chat-backend")


@dataclass
class Turn:
    user: int
    prompt: np.ndarray


@dataclass
class Stats:
    turns: int = 0
    tokens: int = 0
    reused: int = 0
    started: float = field(default_factory=time.time)

    def line(self):
        dt = time.time() - self.started
        return (f"{self.turns} turns, {self.tokens} generated, {self.reused} prefix hits, "
                f"{self.tokens / dt:.1f} tok/s")


def traffic(n_users, n_turns, mean_prompt, vocab, seed):
    rng = np.random.default_rng(seed)
    for _ in range(n_turns):
        length = int(np.clip(rng.normal(mean_prompt, 80), 64, 800))
        yield Turn(int(rng.integers(n_users)), rng.integers(0, vocab, length))


class ChatBackend:
    def __init__(self, device, dtype, n_new, temperature):
        cfg = GPT2Config()
        torch.manual_seed(0)
        self.model = GPT2LMHeadModel(cfg).to(device=device, dtype=dtype).eval()
        self.device = device
        self.n_new = n_new
        self.temperature = temperature
        self.max_ctx = cfg.n_positions
        self.sessions = {}
        self.stats = Stats()

    def _fits(self, past, extra):
        return past.get_seq_length() + extra + self.n_new <= self.max_ctx

    @torch.inference_mode()
    def reply(self, turn):
        ids = torch.as_tensor(turn.prompt, device=self.device)[None]
        past = self.sessions.get(turn.user)
        if past is not None and self._fits(past, ids.size(1)):
            self.stats.reused += 1
        else:
            past = None
        out_tokens = []
        for _ in range(self.n_new):
            out = self.model(input_ids=ids, past_key_values=past, use_cache=True)
            past = out.past_key_values
            probs = torch.softmax(out.logits[:, -1].float() / self.temperature, dim=-1)
            ids = torch.multinomial(probs, 1)
            out_tokens.append(ids.item())
        self.sessions[turn.user] = past  # HERE
        self.stats.turns += 1
        self.stats.tokens += len(out_tokens)
        return out_tokens


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--users", type=int, default=5000)
    ap.add_argument("--turns", type=int, default=3000)
    ap.add_argument("--mean-prompt", type=int, default=450)
    ap.add_argument("--new-tokens", type=int, default=12)
    ap.add_argument("--temperature", type=float, default=0.8)
    ap.add_argument("--seed", type=int, default=11)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="[%(name)s] %(message)s")

    backend = ChatBackend(torch.device("cuda:0"), torch.float16, args.new_tokens, args.temperature)
    trace = traffic(args.users, args.turns, args.mean_prompt, backend.model.config.vocab_size, args.seed)
    for i, turn in enumerate(trace):
        backend.reply(turn)
        if i % 10 == 0:
            logger.info(backend.stats.line())
    logger.info("done: %s", backend.stats.line())


if __name__ == "__main__":
    main()
