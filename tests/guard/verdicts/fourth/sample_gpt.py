"""Draw samples and keep the token entropies."""
import torch
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(0)
config = GPT2Config(vocab_size=151936, n_embd=256, n_layer=4, n_head=4, n_positions=2048,
                    bos_token_id=0, eos_token_id=None, pad_token_id=0)
model = GPT2LMHeadModel(config).cuda().eval()

for rnd in range(4):
    prompt = torch.randint(1, 150000, (32, 16), device="cuda")
    out = model.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        do_sample=True,
        max_new_tokens=800,
        return_dict_in_generate=True,
        output_scores=True,  # HERE
    )
    ent = [torch.distributions.Categorical(logits=s).entropy().mean().item() for s in out.scores]
    print(rnd, out.sequences.shape, sum(ent) / len(ent))
