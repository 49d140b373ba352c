"""Compare greedy decoding and beam search of a Marian translation model (random weights)."""
import argparse
import time

import torch
from torch.utils.data import DataLoader, Dataset
from transformers import MarianConfig, MarianMTModel


class Sentences(Dataset):
    def __init__(self, count, length, vocab):
        gen = torch.Generator().manual_seed(21)
        self.ids = torch.randint(3, vocab, (count, length), generator=gen)
        self.ids[:, -1] = 1

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return self.ids[i]


def build_model(device):
    config = MarianConfig(
        vocab_size=8000, d_model=512, encoder_layers=3, decoder_layers=3,
        encoder_attention_heads=8, decoder_attention_heads=8,
        encoder_ffn_dim=2048, decoder_ffn_dim=2048, max_position_embeddings=512,
        pad_token_id=0, eos_token_id=1, bos_token_id=2, decoder_start_token_id=0,
        forced_eos_token_id=None,
    )
    return MarianMTModel(config).to(device).eval()


class Translator:
    def __init__(self, model, max_new_tokens):
        self.model, self.max_new_tokens = model, max_new_tokens

    @torch.no_grad()
    def translate(self, ids, beams):
        return self.model.generate(  # HERE
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=self.max_new_tokens,
            num_beams=beams,
            do_sample=False,
            length_penalty=1.0,
        )


def unigram_overlap(a, b):
    common = [len(set(x.tolist()) & set(y.tolist())) / max(len(set(x.tolist())), 1) for x, y in zip(a, b)]
    return sum(common) / len(common)


def run(translator, loader, beams, device):
    start, outputs = time.time(), []
    for ids in loader:
        outputs.extend(translator.translate(ids.to(device), beams).cpu())
    print(f"{beams} beams: {len(outputs)} sentences in {time.time() - start:.1f} s", flush=True)
    return outputs


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sentences", type=int, default=128)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--beams", type=int, nargs="+", default=[1, 64])
    parser.add_argument("--new-tokens", type=int, default=20)
    args = parser.parse_args()
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = build_model(device)
    loader = DataLoader(Sentences(args.sentences, args.length, 8000), batch_size=args.batch)
    translator = Translator(model, args.new_tokens)
    results = {beams: run(translator, loader, beams, device) for beams in args.beams}
    base = results[args.beams[0]]
    for beams in args.beams[1:]:
        print(f"{beams} beams share {unigram_overlap(base, results[beams]):.2f} of the words with greedy", flush=True)


if __name__ == "__main__":
    main()
