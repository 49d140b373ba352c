#!/bin/sh
# Compares two replicas on virtual devices of one GPU with one replica of the same batch, in turns within one run.
# Several GPUs, processes and PyTorch: bench/ranks.sh.
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)

fail() { echo "replicas: $*" >&2; exit 2; }
usage() {
  cat <<'HELP'
usage: bench/replicas.sh [--data DIR] [--build DIR] [--device NAME] [--replicas N] [--memory SIZE]
                               [--batches "64 4096"] [--epochs N] [--rounds N]
Prints one Markdown table: the least of the rounds' us per step, alone and with N replicas on virtual devices of SIZE
each, for each batch of all replicas, with and without the optimizer sharded. Without --data digits are generated; --device
is cuda by default, sim:h200 tries the script without a GPU.
HELP
}

data='' build=$root/build/cuda device=cuda replicas=2 memory=8GiB batches='64 4096' epochs=10 rounds=3
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) usage; exit 0 ;;
    --data | --build | --device | --replicas | --memory | --batches | --epochs | --rounds)
      [ $# -ge 2 ] || fail "$1 needs a value"
      name=${1#--}
      eval "$name=\$2"
      shift 2 ;;
    *) fail "unknown argument '$1' (see --help)" ;;
  esac
done
program=$build/examples/train_mnist
[ -x "$program" ] || fail "build first: cmake --preset cuda && cmake --build --preset cuda"
limits=$memory
for _ in $(seq 2 "$replicas"); do limits=$limits,$memory; done

results=$(mktemp)
trap 'rm -f "$results"' EXIT
# measure NAME BATCH WORD...
measure() {
  name=$1 batch=$2
  shift 2
  "$program" --device "$device" ${data:+--data "$data"} --plan parallel --batch "$batch" --epochs "$epochs" --json "$@" 2>/dev/null |
    sed -n 's/.*"seconds_per_step":\([^,}]*\).*/\1/p' | awk -v row="$name $batch" '{ print row, 1e6 * $1 }' >>"$results"
}
for batch in $batches; do
  for _ in $(seq "$rounds"); do
    measure alone "$batch"
    measure replicas "$batch" --virtual-devices "0:$limits" --replicas "$replicas"
    measure sharded "$batch" --virtual-devices "0:$limits" --replicas "$replicas" --shard-optimizer
  done
done
[ -s "$results" ] || fail "no measurement succeeded; try $program --device $device"
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null || true
awk -v n="$replicas" '
  BEGIN { print "| batch | us alone | us, " n " replicas | cost | us, sharded |"; print "| --- | --- | --- | --- | --- |" }
  { key = $1 " " $2; if (!(key in least) || $3 < least[key]) least[key] = $3; if (!($2 in seen)) { seen[$2]; order[++count] = $2 } }
  END { for (i = 1; i <= count; ++i) { b = order[i]; alone = least["alone " b]; all = least["replicas " b]
    printf "| %s | %.1f | %.1f | %+.1f %% | %.1f |\n", b, alone, all, (alone > 0 ? 100 * (all / alone - 1) : 0), least["sharded " b] } }' "$results"
