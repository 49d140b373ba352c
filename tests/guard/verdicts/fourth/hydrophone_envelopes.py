"""Envelopes of long hydrophone recordings.

The recordings come from one big capture file; here it is synthetic.
"""
import torch

device = torch.device("cuda")
HOP = 48


def list_recordings(capture):
    lengths = [75_000_000 + 1_000_000 * ((7 * i) % 25) for i in range(25)]
    return [capture[:n] for n in lengths]


def envelope(rec):
    wave = rec.to(device)
    peak = wave.amax().item()
    del wave
    start = int(0.03 * len(rec))               # skip the switch-on click
    usable = (len(rec) - start) // HOP * HOP
    body = rec[start:start + usable].to(device)
    env = body.view(-1, HOP).amax(1)
    del body
    return env, peak


def main():
    capture = torch.arange(100_000_000, dtype=torch.float32).remainder_(997).div_(997)
    recs = list_recordings(capture)
    recs.sort(key=len)  # HERE
    envelopes, peaks = [], []
    for i, rec in enumerate(recs):
        env, peak = envelope(rec)
        envelopes.append(env)  # HERE
        peaks.append(peak)
        print(f"{i}: {len(rec)} samples -> {len(env)}", flush=True)
    print("kept", sum(e.numel() for e in envelopes) * 4 / 2**20, "MiB, peak", max(peaks))


if __name__ == "__main__":
    main()
