# shellcheck shell=sh
# Common functions of the scripts in this folder; sourced, POSIX sh. Sets $root and does not change the current directory.
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)

say() { printf '%s: %s\n' "$(basename -- "$0" .sh)" "$*"; }
fail() {
  status=$1
  shift
  say "$*" >&2
  exit "$status"
}

# Major version of a GNU compiler; 0 when it is missing.
gnu_major() {
  "$1" -dumpversion 2>/dev/null | cut -d. -f1 | grep -E '^[0-9]+$' || echo 0
}

# C++20 as used here needs g++ 12; Ubuntu 22.04 has it next to an older default. $CXX, if set, is used.
choose_compiler() {
  [ -z "${CXX:-}" ] || return 0
  for candidate in g++ g++-14 g++-13 g++-12; do
    if [ "$(gnu_major "$candidate")" -ge 12 ]; then
      CXX=$candidate
      export CXX
      return 0
    fi
  done
  return 1
}

gpu_is_here() { nvidia-smi -L 2>/dev/null | grep -q '^GPU'; }

# configure PRESET [ARGUMENT...] configures, and prints the GPUs and ranks that it found, or everything if it fails.
configure() {
  preset=$1
  shift
  choose_compiler || fail 2 "no g++ 12 or later"
  if command -v ccache >/dev/null 2>&1; then
    export CMAKE_CXX_COMPILER_LAUNCHER="${CMAKE_CXX_COMPILER_LAUNCHER:-ccache}"
  fi
  # Files dated in the future (a clock set back) would make Ninja regenerate for ever; every run configures anyway.
  say "configuring the $preset preset"
  configured=0
  printed=$(cd "$root" && cmake --preset "$preset" -DCMAKE_SUPPRESS_REGENERATION=ON "$@" </dev/null) || configured=$?
  [ $configured -eq 0 ] || fail 1 "configuring the $preset preset failed
$printed"
  printf '%s\n' "$printed" | sed -n -E 's/^-- ((No )?(CUDA|MPI|NCCL)[ :].*)/  \1/p'
}

# build PRESET [TARGET...] builds, and shows the progress and the compilers' messages.
build() {
  preset=$1
  shift
  if [ $# -gt 0 ]; then set -- --target "$@"; fi
  {
    built=0
    NINJA_STATUS='@ %f %t %e @' cmake --build "$root/build/$preset" --parallel "$(nproc 2>/dev/null || echo 2)" \
      "$@" </dev/null 2>&1 || built=$?
    echo "@ ended $built @"
  } | show_progress || fail 1 "building the $preset preset failed (above)"
}

# Filters the output of Ninja: turns its lines "@ FINISHED TOTAL SECONDS @TEXT" into one line that stays up to date on a
# terminal, or into one every ten seconds elsewhere. Prints all other lines unchanged.
show_progress() {
  clear=
  pause=10
  if [ -t 1 ]; then
    clear=$(printf '\r\033[K')
    pause=0
  fi
  said=0
  ended=1
  while IFS= read -r line; do
    case "$line" in
      '@ ended '*)
        line=${line#@ ended }
        ended=${line% @}
        ;;
      '@ '*)
        # shellcheck disable=SC2086  # three words
        set -- ${line#@}
        seconds=${3%%.*}
        [ $((seconds - said)) -ge $pause ] || continue
        said=$seconds
        left=
        if [ "$seconds" -ge 5 ] && [ "$1" -gt 0 ]; then left=$(time_left $((seconds * ($2 - $1) / $1))); fi
        if [ -t 1 ]; then
          printf '%s%s: building %s of %s%s' "$clear" "$(basename -- "$0" .sh)" "$1" "$2" "$left"
        else
          say "building $1 of $2$left"
        fi
        ;;
      'ninja: no work to do.') ;;
      *) printf '%s%s\n' "$clear" "$line" ;;
    esac
  done
  printf '%s' "$clear"
  return "$ended"
}

# time_left SECONDS
time_left() {
  if [ "$1" -lt 50 ]; then
    echo ", about $((($1 + 9) / 10 * 10)) s left"
  else
    echo ", about $((($1 + 30) / 60)) min left"
  fi
}
