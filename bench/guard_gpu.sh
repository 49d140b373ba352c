#!/bin/sh
# Runs real programs under `headroom run --limit` on a GPU and prints a table: what the driver says was used, read every
# 10 ms, against the limit; how each program ended; the cost of a call.
#   bench/guard_gpu.sh [BUILD_FOLDER] [LIMIT_GIB...]     without a folder it builds the preset release
# Needs nvcc for the C programs; PyTorch, JAX, CuPy and Numba where Python has them.
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
build=${1:-}
if [ -n "$build" ]; then shift; fi
if [ -z "$build" ]; then
  build=$root/build/release
  cmake --preset release -S "$root" >/dev/null
  cmake --build "$build" --target headroom headroom_guard train_mnist
fi
programs=$build/guard_programs
if command -v nvcc >/dev/null 2>&1; then
  nvcc -O1 -std=c++17 -cudart static -o "$programs" "$root/bench/cuda/guard_programs.cu" -lcuda
fi
exec python3 "$root/bench/guard_gpu.py" "$build/tools/headroom" "$programs" "$build/examples/train_mnist" "$@"
