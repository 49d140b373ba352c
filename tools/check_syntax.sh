#!/bin/sh
# Lets a second compiler read all code that needs no CUDA, with the project's warnings as errors, and builds nothing.
set -eu
. "$(dirname -- "$0")/common.sh"

case "${1:-}" in
  '') ;;
  -h | --help)
    cat <<'HELP'
usage: [CXX=COMPILER] tools/check_syntax.sh
Compiles every file outside of cuda/ with -fsyntax-only -Werror and the warnings of the project: by clang++, or by $CXX.
Without clang it installs it where CI=true, and says elsewhere that nothing was checked.
Exit codes: 0 no fault, or no clang; 1 faults, which are printed; 2 something has to be installed by hand.
HELP
    exit 0
    ;;
  *) fail 2 "unknown argument '$1' (see --help)" ;;
esac

# Chooses the newest clang++ that has a clang of the same version.
choose_clang() {
  for version in '' -21 -20 -19 -18 -17 -16 -15 -14; do
    if command -v "clang++$version" >/dev/null && command -v "clang$version" >/dev/null; then
      CXX=clang++$version
      CC=clang$version
      export CXX CC
      return 0
    fi
  done
  return 1
}

if [ -z "${CXX:-}" ] && ! choose_clang; then
  if [ "${CI:-}" != true ]; then
    say "no clang here: nothing was checked (apt-get install clang)"
    exit 0
  fi
  "$root/tools/setup.sh" clang
  choose_clang || fail 2 "no clang after its installation"
fi

# A change of compiler would empty the cache and lose the preset's values.
if [ -f "$root/build/syntax/CMakeCache.txt" ] &&
  ! grep -q "^CMAKE_CXX_COMPILER:[A-Z]*=.*/$(basename -- "$CXX")\$" "$root/build/syntax/CMakeCache.txt"; then
  rm -rf "$root/build/syntax"
fi
# Uses the widest vectors, independent of this machine.
case "$(uname -m)" in
  x86_64) architecture=x86-64-v4 ;;
  *) architecture=native ;;
esac
# clang reads common headers once: its last action option decides between checking a source and writing a precompiled
# header. Other compilers accept -fsyntax-only directly and read each header with each file.
set --
if "$CXX" --version | grep -q clang; then
  set -- -DHEADROOM_PRECOMPILE=ON "-DCMAKE_C_FLAGS_SYNTAX=-Xclang -fsyntax-only -Werror" \
    "-DCMAKE_CXX_FLAGS_SYNTAX=-Xclang -fsyntax-only -Werror"
fi
configure syntax -DHEADROOM_ARCH=$architecture -DCMAKE_CXX_COMPILER_LAUNCHER= -DCMAKE_C_COMPILER_LAUNCHER= \
  --log-level=WARNING "$@"
objects=$(cd "$root/build/syntax" && ninja -t targets all | sed -n '/^_deps/d; s/^\([^:]*\.o\): C[A-Z]*_COMPILER.*/\1/p')
[ -n "$objects" ] || fail 1 "found no file to check"
# No object is ever written, so that each run checks all of them.
# shellcheck disable=SC2086  # a list of words
build syntax $objects -- -k 0
say "no fault in $(echo "$objects" | wc -l) groups of files by $CXX $("$CXX" -dumpversion)"
