"""Minimal PPO fine-tuning of a small GPT-2 against a style reward."""
import argparse
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import set_seed
from transformers import GPT2Config, GPT2LMHeadModel


@dataclass
class Rollout:
    tokens: torch.Tensor
    logprobs: torch.Tensor
    values: torch.Tensor
    reward: torch.Tensor


class ActorCritic(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.lm = GPT2LMHeadModel(cfg)
        self.value = nn.Linear(cfg.n_embd, 1)

    def forward(self, ids):
        out = self.lm.transformer(input_ids=ids, use_cache=False)
        h = out.last_hidden_state
        return self.lm.lm_head(h), self.value(h).squeeze(-1)


def token_logprobs(logits, ids):
    logp = F.log_softmax(logits[:, :-1], dim=-1)
    return logp.gather(-1, ids[:, 1:, None]).squeeze(-1)


def style_reward(ids, vocab):
    lo = (ids < vocab // 4).float().mean(1)
    uniq = torch.tensor([len(set(r.tolist())) / len(r) for r in ids], device=ids.device)
    return lo + 0.5 * uniq


class PPOTrainer:
    def __init__(self, model, opt, acc, args):
        self.model, self.opt, self.acc, self.args = model, opt, acc, args
        self.buffer = []

    @torch.no_grad()
    def sample(self, n, prompt_len, new):
        lm = self.acc.unwrap_model(self.model).lm
        prompt = torch.randint(self.args.vocab, (n, prompt_len), device=self.acc.device)
        body = torch.randint(self.args.vocab, (n, self.args.seq_len - prompt_len - new), device=self.acc.device)
        ids = torch.cat([prompt, body], 1)
        return lm.generate(ids, max_new_tokens=new, min_new_tokens=new, do_sample=True,
                           attention_mask=torch.ones_like(ids), pad_token_id=0)

    def collect(self):
        self.buffer.clear()
        self.model.eval()
        for _ in range(self.args.rollouts):
            ids = self.sample(self.args.chunk, 32, 16)
            logits, values = self.model(ids)
            self.buffer.append(Rollout(ids, token_logprobs(logits, ids), values[:, :-1],  # HERE
                                       style_reward(ids, self.args.vocab)))

    def update(self):
        self.model.train()
        stats = []
        for _ in range(self.args.ppo_epochs):
            for r in self.buffer:
                logits, values = self.model(r.tokens)
                ratio = (token_logprobs(logits, r.tokens) - r.logprobs.detach()).exp()
                adv = (r.reward[:, None] - r.values.detach())
                adv = (adv - adv.mean()) / (adv.std() + 1e-6)
                clip = ratio.clamp(1 - self.args.eps, 1 + self.args.eps)
                pg = -torch.min(ratio * adv, clip * adv).mean()
                vf = F.mse_loss(values[:, :-1], r.reward[:, None].expand_as(r.values))
                loss = pg + 0.1 * vf
                self.acc.backward(loss)
                self.acc.clip_grad_norm_(self.model.parameters(), 1.0)
                self.opt.step()
                self.opt.zero_grad()
                stats.append(loss.item())
        return sum(stats) / len(stats)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--vocab", type=int, default=16000)
    ap.add_argument("--seq-len", type=int, default=256)
    ap.add_argument("--chunk", type=int, default=4)
    ap.add_argument("--rollouts", type=int, default=32)
    ap.add_argument("--ppo-epochs", type=int, default=2)
    ap.add_argument("--iterations", type=int, default=50)
    ap.add_argument("--eps", type=float, default=0.2)
    ap.add_argument("--lr", type=float, default=1e-5)
    args = ap.parse_args()

    acc = Accelerator()
    set_seed(1)
    cfg = GPT2Config(vocab_size=args.vocab, n_embd=512, n_layer=6, n_head=8, n_positions=512,
                     bos_token_id=0, eos_token_id=0)
    model = ActorCritic(cfg)
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr)
    model, opt = acc.prepare(model, opt)
    trainer = PPOTrainer(model, opt, acc, args)
    for it in range(args.iterations):
        trainer.collect()
        loss = trainer.update()
        reward = torch.cat([r.reward for r in trainer.buffer]).mean().item()
        acc.print(f"iter {it} loss {loss:.4f} reward {reward:.4f}")


if __name__ == "__main__":
    main()
