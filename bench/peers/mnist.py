"""MNIST for the other frameworks: the four IDX files as arrays, and the output that the script reads."""
import gzip
import pathlib
import struct

import numpy as np


def read_idx(path):
    """The unsigned bytes of an IDX file, gzipped or not."""
    data = path.read_bytes()
    if data[:2] == b'\x1f\x8b':
        data = gzip.decompress(data)
    rank = data[3]
    extents = struct.unpack('>' + 'I' * rank, data[4:4 + 4 * rank])
    return np.frombuffer(data, np.uint8, offset=4 + 4 * rank).reshape(extents)


def load(folder, split):
    """Images (N,28,28) and labels (N) of 'train' or 't10k'."""
    def find(kind, axes):
        for end in ('', '.gz'):
            path = pathlib.Path(folder) / f'{split}-{kind}-idx{axes}-ubyte{end}'
            if path.exists():
                return read_idx(path)
        raise SystemExit(f'{folder}: no {split}-{kind}')
    return find('images', 3), find('labels', 1)


def report(who, math, batch, microseconds, peak_bytes, accuracy):
    """One line for mnist_gpu.sh: framework, math, batch, us per step, peak MiB of its allocator, test accuracy."""
    print('RESULT', who, math, batch, f'{microseconds:.1f}', f'{peak_bytes / 2**20:.1f}', f'{accuracy:.4f}', flush=True)
