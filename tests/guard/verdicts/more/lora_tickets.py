"""LoRA fine-tuning of a 0.8B Llama on support tickets, without extra libraries."""
import math

import torch
import torch.nn as nn
from transformers import LlamaConfig, LlamaForCausalLM

RANK = 16
ALPHA = 32
TARGETS = ("q_proj", "v_proj")
SEQ = 64
BATCH = 2
STEPS = 200


class LoRALinear(nn.Module):
    """y = W x + (alpha / r) B A x, with W frozen."""

    def __init__(self, base: nn.Linear, rank: int, alpha: float):
        super().__init__()
        self.base = base
        self.base.requires_grad_(False)  # HERE
        self.scale = alpha / rank
        self.lora_a = nn.Parameter(torch.empty(rank, base.in_features, device=base.weight.device))
        self.lora_b = nn.Parameter(torch.zeros(base.out_features, rank, device=base.weight.device))
        nn.init.kaiming_uniform_(self.lora_a, a=math.sqrt(5))

    def forward(self, x):
        return self.base(x) + self.scale * (x @ self.lora_a.T) @ self.lora_b.T


def add_lora(model, targets, rank, alpha):
    replaced = 0
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if name in targets and isinstance(child, nn.Linear):
                setattr(module, name, LoRALinear(child, rank, alpha))
                replaced += 1
    return replaced


def lora_parameters(model):
    return [p for name, p in model.named_parameters() if "lora_" in name]  # HERE


def lora_state_dict(model):
    return {k: v.cpu() for k, v in model.state_dict().items() if "lora_" in k}


def load_base(device):
    config = LlamaConfig(
        vocab_size=16000,
        hidden_size=1536,
        intermediate_size=4096,
        num_hidden_layers=27,
        num_attention_heads=12,
        num_key_value_heads=12,
        max_position_embeddings=512,
        use_cache=False,
    )
    with torch.device(device):
        return LlamaForCausalLM(config)


def tickets(vocab, device, seed=0):
    gen = torch.Generator().manual_seed(seed)
    while True:
        ids = torch.randint(10, vocab, (BATCH, SEQ), generator=gen)
        labels = ids.clone()
        labels[:, : SEQ // 2] = -100            # loss on the answer only
        yield ids.to(device), labels.to(device)


def main():
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    model = load_base(device)
    n = add_lora(model, TARGETS, RANK, ALPHA)
    params = lora_parameters(model)
    print(f"{n} layers adapted, {sum(p.numel() for p in params) / 1e6:.2f}M of "
          f"{model.num_parameters() / 1e6:.0f}M parameters in the optimizer", flush=True)

    model.train()
    opt = torch.optim.AdamW(params, lr=2e-4)
    data = tickets(model.config.vocab_size, device)
    for step in range(STEPS):
        ids, labels = next(data)
        loss = model(input_ids=ids, labels=labels).loss
        loss.backward()  # HERE
        torch.nn.utils.clip_grad_norm_(params, 1.0)
        opt.step()
        opt.zero_grad()
        if step % 10 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)

    torch.save(lora_state_dict(model), "/tmp/lora_tickets.pt")


if __name__ == "__main__":
    main()
