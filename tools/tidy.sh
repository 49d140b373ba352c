#!/bin/sh
# Runs clang-tidy with the checks of .clang-tidy: tools/tidy.sh [--all | FILE...]. With no arguments it checks the
# sources that differ from the branch main. Sources that the build leaves out, such as CUDA's, are skipped.
set -eu
. "$(dirname -- "$0")/common.sh"

tidy=$(command -v clang-tidy || command -v clang-tidy-14) || fail 2 "install clang-tidy"
cd "$root"
case "${1:-}" in
  -h | --help)
    sed -n '2,3s/^# //p' "$root/tools/tidy.sh"
    exit 0
    ;;
  --all) files=$(git ls-files '*.cpp') ;;
  '') files=$(git diff --name-only --diff-filter=d "$(git merge-base HEAD main)" -- '*.cpp') ;;
  *) files=$* ;;
esac
[ -n "$files" ] || fail 0 "no source differs from main"
# clang cannot read a precompiled header of g++.
build=$root/build/tidy
cmake --preset dev -B "$build" -DHEADROOM_PRECOMPILE=OFF >/dev/null || fail 1 "configuring failed"
for file in $files; do
  if grep -qF "\"$root/$file\"" "$build/compile_commands.json"; then echo "$file"; fi
done | xargs -r -P "$(nproc 2>/dev/null || echo 2)" -n 1 "$tidy" --quiet -p "$build"
