#!/bin/sh
# Runs the examples of the C interface, in C and in Python:  examples_test.sh LIBRARY PROGRAM SCRIPT PACKAGES
set -eu
expect() {
  printf '%s\n' "$out"
  printf '%s\n' "$out" | grep -q "$1" || {
    echo "not printed: $1"
    exit 1
  }
}
out=$("$2")
expect '^own memory: 24 allocations, peak 36 MiB allocated'
expect '^out of memory: tried to allocate 1.00 GiB'
expect '^256 MiB of our own memory are free again$'
expect '^simulated GPU: 24 allocations'
command -v python3 >/dev/null || exit 0
out=$(python3 "$3" "$1")
expect 'mapped'
expect '^trim released [1-9][0-9]* MiB$'
expect '^out of memory: tried to allocate 1.00 TiB'
