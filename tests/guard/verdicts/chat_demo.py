import argparse

import torch
from transformers import AutoModelForCausalLM, Qwen2Config


def parse_args():
    parser = argparse.ArgumentParser(description="Toy chat loop over token ids")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--layers", type=int, default=18)
    parser.add_argument("--hidden", type=int, default=1536)
    parser.add_argument("--turns", type=int, default=3)
    return parser.parse_args()


def load_model(args):
    config = Qwen2Config(
        vocab_size=16_000,
        hidden_size=args.hidden,
        intermediate_size=4 * args.hidden,
        num_hidden_layers=args.layers,
        num_attention_heads=12,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
    )
    model = AutoModelForCausalLM.from_config(config)
    print(f"{model.num_parameters() / 1e6:.0f}M parameters, {model.dtype}", flush=True)
    return model.eval()


def main():
    args = parse_args()
    torch.manual_seed(0)
    model = load_model(args)
    model.to(args.device)  # HERE
    print("model is on", model.device, flush=True)

    history = torch.randint(3, 16_000, (1, 32), device=args.device)
    for turn in range(args.turns):
        with torch.no_grad():
            history = model.generate(
                input_ids=history,
                attention_mask=torch.ones_like(history),
                max_new_tokens=20,
                do_sample=True,
            )
        print(f"turn {turn}: {history[0, -20:].tolist()}")


if __name__ == "__main__":
    main()
