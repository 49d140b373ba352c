#!/bin/sh
# A training step on one CPU core, ours and PyTorch's (if python3 has torch), in turns within one run.
set -eu
case ${1:-} in
  -h | --help) echo 'usage: bench/train_step.sh [batch [rounds]]'; exit 0 ;;
  *[!0-9]*) echo "train_step: '$1' is not a number (see --help)" >&2; exit 2 ;;
esac
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
batch=${1:-64}
rounds=${2:-3}
ours=$root/build/release/bench/train_step
[ -x "$ours" ] || { echo "train_step.sh: build first: cmake --preset release && cmake --build --preset release" >&2; exit 2; }
# The first core that this process may use.
core=$(taskset -pc $$ 2>/dev/null | sed 's/.*: *//; s/[,-].*//')
pin=${core:+taskset -c $core}
grep -m1 'model name' /proc/cpuinfo || true
for _ in $(seq "$rounds"); do
  $pin "$ours" "$batch" 300
  if python3 -c 'import torch' 2>/dev/null; then OMP_NUM_THREADS=1 $pin python3 "$root/bench/peers/torch_step.py" "$batch" 300; fi
done
