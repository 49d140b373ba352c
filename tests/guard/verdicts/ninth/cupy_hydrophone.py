"""Power spectra of whole hydrophone recordings, in third-octave bands, with CuPy."""
import argparse

import cupy as cp
import numpy as np

RATE = 96_000
SECONDS = [300, 315, 320, 336, 350, 360, 375, 378, 384, 392, 400, 405, 420, 432, 441, 448, 450, 480, 486, 490, 500]


def record(seconds, seed):
    """A recording in the file's own format: 16-bit samples of two phases."""
    rng = np.random.default_rng(seed)
    block = rng.normal(0, 2000, (RATE, 2)).astype(np.int16)
    tone = 8000 * np.sin(2 * np.pi * (40 + 15 * seed) * np.arange(RATE) / RATE)
    block[:, 0] += tone.astype(np.int16)
    return np.tile(block, (seconds, 1))


def analytic(samples):
    samples = cp.asarray(samples)
    signal = cp.empty(len(samples), cp.complex64)
    signal.real = samples[:, 0]
    signal.imag = samples[:, 1]
    signal /= 32768
    return signal


def third_octaves(low=10, high=20_000):
    centres = low * 2 ** (np.arange(40) / 3)
    centres = centres[centres < high]
    return [(c, c * 2 ** (-1 / 6), c * 2 ** (1 / 6)) for c in centres]


def spectrum(signal):
    power = cp.abs(cp.fft.fft(signal))  # HERE
    power *= power
    return power[:len(power) // 2]


def band_levels(power, seconds):
    levels = []
    for centre, low, high in third_octaves():
        part = power[int(low * seconds):max(int(high * seconds), int(low * seconds) + 1)]
        levels.append((centre, 10 * float(cp.log10(part.sum() + 1e-12))))
    return levels


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--recordings", type=int, default=len(SECONDS))
    parser.add_argument("--shorten", type=int, default=1, help="use 1/n of each recording")
    args = parser.parse_args()
    loudest = {}
    for number in range(args.recordings):
        seconds = SECONDS[number % len(SECONDS)] // args.shorten
        signal = analytic(record(seconds, number))
        levels = band_levels(spectrum(signal), seconds)
        centre, level = max(levels, key=lambda pair: pair[1])
        loudest[number] = centre
        print(f"recording {number}: {seconds} s, loudest band {centre:.0f} Hz at {level:.1f} dB", flush=True)
    print(f"{len(set(loudest.values()))} different bands lead")


if __name__ == "__main__":
    main()
