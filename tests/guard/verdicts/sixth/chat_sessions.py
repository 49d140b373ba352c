"""Load test of a chat back-end that re-uses the prefix of each session."""
import argparse
import random
import time
import uuid
from dataclasses import dataclass, field

import torch
from transformers import GPT2Config, GPT2LMHeadModel


@dataclass
class Session:
    uid: str
    cache: object = None
    last_token: int = 0
    turns: int = 0
    touched: float = field(default_factory=time.time)


class ChatBackend:
    def __init__(self, vocab=32000, device="cuda"):
        cfg = GPT2Config(vocab_size=vocab, n_positions=1024, n_embd=1024, n_layer=20, n_head=16,
                         bos_token_id=0, eos_token_id=0)
        self.model = GPT2LMHeadModel(cfg).to(device).eval()
        self.vocab, self.device = vocab, device
        self.sessions = {}

    def open(self):
        uid = uuid.uuid4().hex
        self.sessions[uid] = Session(uid)  # HERE
        return uid

    @torch.inference_mode()
    def reply(self, uid, prompt, max_new=8):
        s = self.sessions[uid]
        ids = torch.tensor([prompt], device=self.device)
        answer = []
        for _ in range(max_new):
            out = self.model(ids, past_key_values=s.cache, use_cache=True)
            s.cache = out.past_key_values  # HERE
            ids = out.logits[:, -1].argmax(-1, keepdim=True)
            answer.append(ids.item())
        s.turns += 1
        s.touched = time.time()
        return answer


def user(backend, rng):
    """One visitor: a long first message, perhaps a follow-up question."""
    uid = backend.open()
    turns = rng.choice([1, 1, 2])
    for t in range(turns):
        length = rng.randint(200, 380) if t == 0 else rng.randint(10, 40)
        prompt = [rng.randrange(backend.vocab) for _ in range(length)]
        backend.reply(uid, prompt)
    return turns


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--users", type=int, default=500)
    ap.add_argument("--seed", type=int, default=0)
    args = ap.parse_args()
    rng = random.Random(args.seed)
    torch.manual_seed(0)
    backend = ChatBackend()
    start, turns = time.time(), 0
    for k in range(args.users):
        turns += user(backend, rng)
        if k % 10 == 0:
            print(f"{k} users, {turns} turns, {turns / (time.time() - start):.2f} turns/s",
                  flush=True)


if __name__ == "__main__":
    main()
