#!/usr/bin/env python3
"""Decoding with a cache of keys and values beside PyTorch's static cache and torch.compile, on one GPU or core.

usage: decode.py HEADROOM FOLDER [--net NET] [--batches N...] [--prompt N] [--words N] [--length N] [--rounds N]
                 [--programs compile eager] [--check] [--on-card] [--cpu] [-- OPTION...]
       decode.py --export FILE.onnx [--net NET] [--batch N] [--length N]

Exports one step of a net of nets.py with a cache of --length words to FOLDER, once for each batch, and runs --words
steps after a prompt of --prompt words, by `headroom run --state`; OPTION goes to it, --plan packed unless given.
PyTorch decodes with the StaticCache of Transformers and its forward pass compiled with mode reduce-overhead. All
weights are random and bf16, and each program chooses the likeliest word and reads it in the next step. Prints ms a
word, the least of all rounds, and MiB allocated. With --check a small net decodes in f32, on the CPU or with --on-card
on a GPU, and the words are compared with those of PyTorch without a cache. With --cpu they run in f32 on the CPU.
"""
import argparse
import inspect
import json
import os
import pathlib
import struct
import subprocess
import sys
import time

import nets

MIB = 2**20
PAIRS = "past=present,text=next_text,position=next_position"


def name_of_cache(net):
    """The argument that takes the cache: Transformers renames it."""
    return "cache" if "cache" in inspect.signature(net.forward).parameters else "past_key_values"


def make_step(net, batch, length, queries=1, with_logits=False):
    """A module whose outputs are its inputs of the next step, with examples and names of both.

    `text` (batch, length) begins with `prompt` words. A step reads those from `position` on, and writes the one that
    follows, unless the prompt has it. past.* (batch, heads, length, extent) are the cache.
    """
    import torch

    config = net.config
    extent = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads

    class Cache:
        def __init__(self, past, places):
            self.past, self.places = past, places

        def get_seq_length(self, *args):
            return 0

        def update(self, keys, values, layer, *args, **kwargs):
            for at, rows in ((2 * layer, keys), (2 * layer + 1, values)):
                self.past[at] = self.past[at].index_copy(2, self.places, rows)
            return self.past[2 * layer], self.past[2 * layer + 1]

    class Step(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net

        def forward(self, text, position, prompt, *past):
            places = position + torch.arange(queries)
            shown = torch.arange(length)[None, None, None, :] <= places[None, None, :, None]
            cache = Cache(list(past), places)
            logits = self.net(input_ids=text.index_select(1, places), attention_mask=shown, position_ids=places[None],
                              use_cache=True, **{name_of_cache(self.net): cache}).logits[:, -1]
            following = position + queries
            best = logits.argmax(-1, keepdim=True)
            word = torch.where(following < prompt, text.index_select(1, following), best)
            results = [text.index_copy(1, following, word), following, *cache.past]
            return tuple(results + [logits] if with_logits else results)

    names = [f"{i}.{part}" for i in range(config.num_hidden_layers) for part in ("key", "value")]
    past = [torch.zeros(batch, config.num_key_value_heads, length, extent) for _ in names]
    inputs = (torch.zeros(batch, length, dtype=torch.int64), torch.zeros(1, dtype=torch.int64),
              torch.ones(1, dtype=torch.int64), *past)
    input_names = ["text", "position", "prompt", *[f"past.{name}" for name in names]]
    output_names = ["next_text", "next_position", *[f"present.{name}" for name in names]]
    return Step().eval(), inputs, input_names, output_names + ["logits"] * with_logits


def export(net, path, **sizes):
    import torch

    step, inputs, input_names, output_names = make_step(net, **sizes)
    with torch.no_grad():
        program = torch.onnx.export(step, inputs, dynamo=True, opset_version=20, input_names=input_names,
                                    output_names=output_names)
    program.save(path, external_data=True)


def small_net():
    import torch
    import transformers

    torch.manual_seed(0)
    config = transformers.LlamaConfig(vocab_size=320, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
                                      num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64)
    config._attn_implementation = "sdpa"
    return transformers.LlamaForCausalLM(config)


def write_integers(path, tensors):
    """A safetensors file of int64 tensors: name -> (extents, numbers)."""
    header, data = {}, b""
    for name, (extents, numbers) in tensors.items():
        packed = struct.pack(f"<{len(numbers)}q", *numbers)
        header[name] = {"dtype": "I64", "shape": extents, "data_offsets": [len(data), len(data) + len(packed)]}
        data += packed
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def read_integers(path, name):
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    entry = json.loads(data[8:8 + size])[name]
    begin, end = (8 + size + offset for offset in entry["data_offsets"])
    return list(struct.unpack(f"<{(end - begin) // 4}i", data[begin:end]))


def write_data(path, words, length, position):
    """The inputs of steps that begin at that position of texts whose words are given, a list for each."""
    text = [word for row in words for word in row + [0] * (length - len(row))]
    write_integers(path, {"text": ([len(words), length], text), "position": ([1], [position]),
                          "prompt": ([1], [len(words[0])])})


def run_in_headroom(options, model, data, steps, extra=(), precision="bf16"):
    command = [options.headroom, "run", "--model", model, "--state", PAIRS, "--data", data, "--steps", str(steps),
               "--json", "--device", "cpu" if options.cpu else "cuda", *extra]
    if not options.cpu:
        command += ["--precision", precision]
    done = subprocess.run(command + (options.rest or ["--plan", "packed"]), capture_output=True, text=True)
    if done.returncode:
        return {"error": ((done.stdout + done.stderr).strip().splitlines() or ["no output"])[-1][:300]}
    result = json.loads(done.stdout)
    return {"ms": 1e3 * result["seconds_per_step"], "mib": result["peak_allocated_bytes"] / MIB,
            "process_mib": result["peak_process_bytes"] / MIB}


def decode_in_torch(name, how, batch, prompt, words, length, on_cpu):
    """Milliseconds a word after the prompt: each step copies the chosen word into the next one's input."""
    import torch
    from transformers import StaticCache

    torch.manual_seed(0)
    device, dtype = ("cpu", torch.float32) if on_cpu else ("cuda", torch.bfloat16)
    net = nets.make(name)[0].eval().to(device, dtype)
    net.config.use_cache = True

    name = name_of_cache(net)

    def step(word, position, cache):
        logits = net(input_ids=word, position_ids=position, use_cache=True, **{name: cache}).logits
        return logits[:, -1].argmax(-1, keepdim=True)

    run = torch.compile(step, mode="reduce-overhead") if how == "compile" else step
    texts = torch.randint(0, 1000, (batch, prompt), device=device)
    wait = (lambda: None) if on_cpu else torch.cuda.synchronize
    best = None
    with torch.no_grad():
        for turn in range(3):  # the first compiles and captures
            cache = StaticCache(config=net.config, max_cache_len=length)
            word = step(texts, torch.arange(prompt, device=device)[None], cache)
            positions = torch.arange(prompt, prompt + words, device=device)[:, None, None].unbind()
            wait()
            start = time.perf_counter()
            for position in positions:
                word = run(word, position, cache).clone()
            wait()
            ms = 1e3 * (time.perf_counter() - start) / words
            best = ms if turn == 1 or (best and ms < best) else best
    mib = 0 if on_cpu else torch.cuda.max_memory_allocated() / MIB
    return {"ms": best, "mib": mib}


def check(options):
    """Compares the words of a small net with PyTorch's, which has no cache."""
    import torch

    net, length, batch, prompt = small_net().eval(), 48, 2, 5
    texts = torch.randint(0, 320, (batch, prompt), generator=torch.Generator().manual_seed(1))
    whole = texts
    with torch.no_grad():
        while whole.shape[1] < length:
            whole = torch.cat([whole, net(input_ids=whole, use_cache=False).logits[:, -1:].argmax(-1)], 1)
    model, data, answer = (options.folder / f"check.{end}" for end in ("onnx", "safetensors", "answer.safetensors"))
    export(net, model, batch=batch, length=length)
    write_data(data, texts.tolist(), length, 0)
    options.cpu = not options.on_card
    exact = ["--math", "f32"] if options.on_card else []
    result = run_in_headroom(options, model, data, length - 1, ["--outputs", answer, *exact], "f32")
    if "error" in result:
        sys.exit(result["error"])
    got, want = read_integers(answer, "text"), whole.flatten().tolist()
    equal = sum(a == b for a, b in zip(got, want))
    print(f"{equal} of {len(want)} words are equal")
    sys.exit(0 if equal == len(want) else 1)


def main():
    if sys.argv[1:2] == ["--child"]:
        name, how, *numbers, on_cpu = sys.argv[2:]
        print(json.dumps(decode_in_torch(name, how, *map(int, numbers), on_cpu == "True")))
        return
    words = sys.argv[1:]
    rest = words[words.index("--") + 1:] if "--" in words else []
    words = words[: words.index("--")] if "--" in words else words
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("headroom", nargs="?")
    parser.add_argument("folder", nargs="?", type=pathlib.Path)
    parser.add_argument("--export", type=pathlib.Path)
    parser.add_argument("--net", default="llama")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--words", type=int, default=128)
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--programs", nargs="*", choices=["compile", "eager"], default=["compile"])
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--on-card", action="store_true")
    parser.add_argument("--cpu", action="store_true")
    options = parser.parse_args(words)
    options.rest = rest
    if options.export:
        return export(nets.make(options.net)[0], options.export, batch=options.batch, length=options.length)
    options.folder.mkdir(parents=True, exist_ok=True)
    if options.check:
        return check(options)
    print(f"{'net':10} {'batch':>5} {'program':8} {'ms/word':>9} {'of ours':>8} {'MiB':>9}", flush=True)
    for batch in options.batches:
        model = options.folder / f"{options.net}.decode_{batch}_{options.length}.onnx"
        data = options.folder / "prompt.safetensors"
        if not model.exists():
            export(nets.make(options.net)[0], model, batch=batch, length=options.length)
        # The cache is zeros: the time does not depend on what it holds.
        write_data(data, [list(range(options.prompt))] * batch, options.length, options.prompt)
        results = {how: [] for how in ["headroom", *options.programs]}
        for _ in range(options.rounds):
            for how, runs in results.items():
                if how == "headroom":
                    runs.append(run_in_headroom(options, model, data, options.words))
                    continue
                numbers = map(str, (batch, options.prompt, options.words, options.length, options.cpu))
                done = subprocess.run([sys.executable, __file__, "--child", options.net, how, *numbers],
                                      capture_output=True, text=True, env=os.environ)
                runs.append({"error": (done.stderr.strip().splitlines() or ["no output"])[-1][:300]} if done.returncode
                            else json.loads(done.stdout.splitlines()[-1]))
        ours = None
        for how, runs in results.items():
            done = [run for run in runs if "ms" in run]
            if not done:
                print(f"{options.net:10} {batch:5} {how:8} {runs[0]['error']}", flush=True)
                continue
            best = min(done, key=lambda run: run["ms"])
            ours = best["ms"] if how == "headroom" else ours
            ratio = f"{best['ms'] / ours:8.3f}" if ours else " " * 8
            print(f"{options.net:10} {batch:5} {how:8} {best['ms']:9.4f} {ratio} {best['mib']:9.0f}", flush=True)


if __name__ == "__main__":
    main()
