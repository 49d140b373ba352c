#!/bin/sh
# Trains in PyTorch under our strategies, PyTorch's default and expandable_segments in one run: peak memory and steps
# per second of a transformer on texts of random lengths, of a graph network on random subgraphs, and of a detector on
# images of random sizes.
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
say() { echo "pytorch: $*" >&2; }
fail() { say "$*"; exit 2; }

library=${HEADROOM_TORCH_LIBRARY:-$root/build/cuda/tools/torch/libheadroom_torch.so}
case ${1:-} in
  -h | --help)
    echo 'usage: bench/pytorch.sh [--library FILE] [--workloads transformer graph detection] [--steps N] [--rounds N] [--seed N]'
    echo '                              [--json FILE] [VARIANT...]'
    echo 'VARIANT: pytorch, pytorch,SETTINGS (of PYTORCH_CUDA_ALLOC_CONF), or a strategy such as mapped or caching+limit=40GiB;'
    echo 'the first is what the others are compared with.'
    exit 0 ;;
  --library) [ $# -ge 2 ] || fail '--library needs a file'; library=$2; shift 2 ;;
esac
python3 -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' 2>/dev/null ||
  fail 'needs python3 with PyTorch, and a GPU that it sees'
[ -e "$library" ] || fail "build first: cmake --preset cuda && cmake --build --preset cuda --target headroom_torch"
export HEADROOM_TORCH_LIBRARY="$library" PYTHONPATH="$root/python${PYTHONPATH:+:$PYTHONPATH}"
exec python3 "$root/bench/pytorch_training.py" "$@"
