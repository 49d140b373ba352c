#!/bin/sh
# Checks that each file of code includes the standard headers of the names that it uses, by the table std_headers.txt, because compilers differ in what their headers include.  check.sh [CHECKOUT]
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
cd -- "${1:-$here/../..}"
folders=
for folder in base sheet device ops collective trace guard allocators kernels runtime answers examples tools bench tests; do
  if [ -d $folder ]; then folders="$folders $folder"; fi
done
# shellcheck disable=SC2046,SC2086  # lists of paths without spaces
exec awk -f "$here/check.awk" "$here/std_headers.txt" $(find $folders \( -path 'tests/*/wrong' -prune \) -o \
  -type f \( -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' \) -print | sort)
