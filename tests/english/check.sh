#!/bin/sh
# Checks the English of comments: their blocks begin with a subject or a verb and use none of the words to avoid.
# check.sh [--list] [CHECKOUT]
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
list=0
if [ "${1:-}" = --list ]; then list=1; shift; fi
cd -- "${1:-$here/../..}"
folders=
for folder in base device ops collective trace guard allocators kernels runtime answers sheet tools python examples bench tests; do
  if [ -d $folder ]; then folders="$folders $folder"; fi
done
# shellcheck disable=SC2046,SC2086  # lists of paths without spaces
exec awk -v LIST=$list -v MAX=1 -f "$here/check.awk" $(find $folders \( -path 'tests/*/wrong' -prune \) -o \
  -type f \( -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' -o -name '*.py' -o -name '*.sh' \) -print | sort)
