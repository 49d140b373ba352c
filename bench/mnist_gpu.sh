#!/bin/sh
# Trains the conv net on one GPU with Headroom, PyTorch and JAX in turns, all with the data on the device.
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)

say() { echo "mnist_gpu: $*" >&2; }
fail() { say "$*"; exit 2; }
usage() {
  cat <<'HELP'
usage: bench/mnist_gpu.sh --data DIR [--build DIR] [--epochs N] [--batches "64 512 4096"]
                                [--math "f32 tf32 bf16"] [--runs N] [--no-peers]
Prints one Markdown table: us per training step (median over the epochs), the ratio to ours, the allocator's
peak; then how long it takes from the start of the process to 99 % of the test set (--runs seeds). A peer that
python3 lacks is left out. --build names the build folder, build/cuda unless given.
HELP
}

data='' program=$root/build/cuda/examples/train_mnist epochs=9 batches='64 512 4096' maths='f32 tf32 bf16' runs=5 peers=yes
while [ $# -gt 0 ]; do
  case $1 in
    --data | --build | --epochs | --batches | --math | --runs) [ $# -ge 2 ] || fail "$1 needs a value" ;;
  esac
  case $1 in
    -h | --help) usage; exit 0 ;;
    --data) data=$2; shift 2 ;;
    --build) program=$2/examples/train_mnist; shift 2 ;;
    --epochs) epochs=$2; shift 2 ;;
    --batches) batches=$2; shift 2 ;;
    --math) maths=$2; shift 2 ;;
    --runs) runs=$2; shift 2 ;;
    --no-peers) peers=no; shift ;;
    *) fail "unknown argument '$1' (see --help)" ;;
  esac
done
[ -n "$data" ] || fail "--data DIR names the folder with MNIST's four files"
[ -d "$data" ] || fail "$data: no such folder"
[ -x "$program" ] || fail "build first: cmake --preset cuda && cmake --build --preset cuda"

results=$(mktemp) errors=$(mktemp)
trap 'rm -f "$results" "$errors"' EXIT
field() { sed -n "s/.*\"$1\":\"\{0,1\}\([^,\"}]*\).*/\1/p"; }

# ours KERNELS MATH BATCH
ours() {
  json=$("$program" --device cuda --data "$data" --plan parallel --strategy direct --kernels "$1" --math "$2" --batch "$3" --epochs "$epochs" \
    --json 2>"$errors") || { say "ours, $1, $2, batch $3: $(tail -n 1 "$errors")"; return 0; }
  printf 'RESULT Headroom %s %s %s %s %s %s\n' "$1" "$2" "$3" \
    "$(printf '%s' "$json" | field seconds_per_step | awk '{ printf "%.1f", 1e6 * $1 }')" \
    "$(printf '%s' "$json" | field peak_reserved_bytes | awk '{ printf "%.1f", $1 / 1048576 }')" \
    "$(printf '%s' "$json" | field test_accuracy)" >>"$results"
}

# peer MODULE PROGRAM ARGUMENT...
peer() {
  module=$1 script=$root/bench/peers/$2
  shift 2
  [ $peers = yes ] || return 0
  python3 -c "import $module" 2>/dev/null || { say "python3 has no $module; skipped"; return 0; }
  python3 "$script" "$data" "$@" 2>"$errors" | grep '^RESULT' >>"$results" || say "$module $*: $(tail -n 1 "$errors")"
}

for math in $maths; do
  for kernels in fused library; do
    for batch in $batches; do ours $kernels "$math" "$batch"; done
  done
  # shellcheck disable=SC2086  # each batch is an argument
  {
    peer torch torch_mnist.py eager "$math" 2 $batches
    peer torch torch_mnist.py graph "$math" 3 $batches
    peer jax jax_mnist.py "$math" 3 $batches
  }
done

[ -s "$results" ] || { say "nothing could be measured"; exit 1; }
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null || true
awk '
  { n = NF; who = $2; for (i = 3; i <= n - 5; ++i) who = who " " $i
    math = $(n - 4); batch = $(n - 3); us = $(n - 2); mib = $(n - 1); right = $n
    if (who == "Headroom fused") best[math, batch] = us
    row[NR] = who; maths[NR] = math; batches[NR] = batch; time[NR] = us; memory[NR] = mib; accuracy[NR] = right }
  END {
    print "| math | batch | who | us per step | times ours | allocator peak, MiB | test accuracy |"
    print "| --- | --- | --- | --- | --- | --- | --- |"
    for (i = 1; i <= NR; ++i) {
      ours = best[maths[i], batches[i]]
      printf "| %s | %s | %s | %s | %s | %s | %.2f %% |\n", maths[i], batches[i], row[i], time[i], \
        (ours ? sprintf("%.2f", time[i] / ours) : "-"), memory[i], 100 * accuracy[i]
    }
  }' "$results"

# The recipe of docs/notes/training.md.
i=1
while [ "$i" -le "$runs" ]; do
  "$program" --device cuda --data "$data" --config "$root/examples/models/mnist/fast.toml" --seed "$i" --target-accuracy 0.99 --json \
    2>/dev/null | field seconds_to_target || true
  i=$((i + 1))
done | sort -n | awk '
  { if ($1 != "null") seconds[++n] = $1; ++all }
  END { printf "\nfrom process start to 99 %%: reached by %d of %d seeds", n, all
        if (n) printf ", median %.2f s (%.2f to %.2f s)", seconds[int((n + 1) / 2)], seconds[1], seconds[n]
        print "" }'
