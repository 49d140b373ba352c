#!/bin/bash
# Ends trainings with SIGKILL at random moments and checks that the file of --save is whole each time, and that a
# training resumed from it has the bits of one that nobody ended.
set -eu
. "$(dirname -- "$0")/common.sh"

usage() {
  cat <<'HELP'
usage: tools/kill_test.sh [--train PROGRAM] [--seed N] [TIMES]
Starts train_mnist with --save and --checkpoint-every 1 and sends it SIGKILL at a random moment, TIMES times (200 unless
given). A quarter of the runs has two processes that write one file, a quarter a full disk (a limit on the size of
files), a quarter a slow disk (a preloaded library that writes 16 KiB in 2 ms); the rest have neither.
After each kill the file, if there is one, must be whole and must resume, and the weights at the end must have the bits
of an uninterrupted training.
Needs cc.
  --train PROGRAM  build/release/examples/train_mnist unless given
Exit codes: 0 all hold, 5 one does not, 2 bad arguments.
HELP
}

train=$root/build/release/examples/train_mnist
seed=1
times=200
while [ $# -gt 0 ]; do
  case "$1" in
    --train) train=$2 && shift ;;
    --seed) seed=$2 && shift ;;
    -h | --help)
      usage
      exit 0
      ;;
    *[!0-9]* | '') fail 2 "unknown argument '$1' (see --help)" ;;
    *) times=$1 ;;
  esac
  shift
done
[ -x "$train" ] || fail 2 "$train is missing (--train PROGRAM)"
RANDOM=$seed
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

cat >"$folder/slow_disk.c" <<'SLOW'
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <unistd.h>
ssize_t write(int descriptor, const void* data, size_t bytes) {
  if (bytes > 16384) bytes = 16384;
  usleep(2000);
  return syscall(SYS_write, descriptor, data, bytes);
}
SLOW
"${CC:-cc}" -shared -fPIC -O1 -o "$folder/slow_disk.so" "$folder/slow_disk.c"

# The same for all, but for the number of epochs: the rate is constant.
words="--device cpu --plan packed --steps 5 --batch 4 --schedule constant --evaluate-every 5"
checksum() { sed -n 's/.*"weights_checksum":"\([0-9a-f]*\)".*/\1/p' | head -n 1; }
# The bits after EPOCHS epochs without interruption, each computed once.
whole() {
  if [ ! -e "$folder/whole.$1" ]; then
    # shellcheck disable=SC2086  # words
    "$train" $words --epochs "$1" --json 2>/dev/null | checksum >"$folder/whole.$1"
  fi
  cat "$folder/whole.$1"
}
steps_in() { head -c 65536 "$1" | tr -d '\0' | grep -ao '"steps done":"[0-9]*"' | head -n 1 | tr -dc '0-9'; }

found=0
none=0
broken=0
for ((i = 1; i <= times; i++)); do
  file=$folder/run.st
  rm -f "$folder"/run.st*
  pids=
  kind=$((i % 4))
  copies=1
  [ $kind -ne 1 ] || copies=2
  for ((copy = 0; copy < copies; copy++)); do
    (
      # A checkpoint has 1.1 MiB: a limit below it is a disk that is full at the second write of the file.
      if [ $kind -eq 2 ]; then
        # shellcheck disable=SC2086  # words
        "$train" $words --epochs 1 --steps 5 --save "$file" >/dev/null 2>&1 || true
        ulimit -f 600
      fi
      if [ $kind -eq 3 ]; then export LD_PRELOAD="$folder/slow_disk.so"; fi
      # shellcheck disable=SC2086  # words
      exec "$train" $words --epochs 100000 --save "$file" --checkpoint-every 1 >/dev/null 2>"$folder/errors"
    ) &
    pids="$pids $!"
  done
  # One in ten dies while it starts, the others in the half second after the first checkpoint.
  if [ $((i % 10)) -ne 0 ]; then
    for ((look = 0; look < 2000; look++)); do [ ! -e "$file" ] || break; sleep 0.01; done
  fi
  sleep "0.$(printf '%03d' $((RANDOM % 500)))"
  # shellcheck disable=SC2086  # a list of numbers
  kill -KILL $pids 2>/dev/null || true
  # shellcheck disable=SC2086
  wait $pids 2>/dev/null || true
  left=$(find "$folder" -name 'run.st.*' | wc -l)
  if [ ! -e "$file" ]; then
    none=$((none + 1))
    continue
  fi
  found=$((found + 1))
  steps=$(steps_in "$file")
  epochs=$((${steps:-0} / 5 + 1))
  # shellcheck disable=SC2086  # words
  resumed=$("$train" $words --epochs $epochs --resume "$file" --json 2>"$folder/errors" | checksum)
  if [ -z "$steps" ] || [ -z "$resumed" ] || [ "$resumed" != "$(whole $epochs)" ]; then
    broken=$((broken + 1))
    say "run $i (kind $kind): the file after step ${steps:-?} gives '${resumed:-nothing}', not '$(whole $epochs)': $(head -n 1 "$folder/errors")"
  fi
  [ "$left" -eq 0 ] || say "run $i (kind $kind): $left other files are left"
done
say "$times kills: $found files, $((found - broken)) of them whole and resumed with the same bits; $none before the first"
[ $broken -eq 0 ] || exit 5
