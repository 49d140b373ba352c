import torch
from accelerate import Accelerator
from transformers import GPT2Config, GPT2LMHeadModel


class Curriculum:
    """Starts with short sequences and lengthens them after each stage."""

    def __init__(self, start=128, stage_steps=10, longest=8192):
        self.length, self.stage_steps, self.longest = start, stage_steps, longest

    def update(self, step):
        if step and step % self.stage_steps == 0:
            self.length = min(2 * self.length, self.longest)  # HERE
            return True
        return False


def main():
    torch.manual_seed(100)
    accelerator = Accelerator()
    config = GPT2Config(vocab_size=8000, n_positions=8192, n_embd=512, n_layer=6, n_head=8, use_cache=False)
    model = GPT2LMHeadModel(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.1)
    model, optimizer = accelerator.prepare(model, optimizer)

    text = torch.randint(0, config.vocab_size, (2_000_000,))
    curriculum = Curriculum()
    batch_size = 8
    for step in range(80):
        if curriculum.update(step):
            accelerator.print(f"sequence length is now {curriculum.length}", flush=True)
        starts = torch.randint(0, len(text) - curriculum.length, (batch_size,))
        ids = torch.stack([text[s : s + curriculum.length] for s in starts]).to(accelerator.device)
        loss = model(input_ids=ids, labels=ids).loss  # HERE
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        if step % 5 == 0:
            accelerator.print(f"step {step} length {curriculum.length} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
