#!/bin/sh
# Builds the fuzz targets with clang and its address and undefined-behaviour sanitizers, and runs them.
set -eu
. "$(dirname -- "$0")/common.sh"

case "${1:-}" in
  '' | -h | --help)
    cat <<'HELP'
usage: tools/fuzz.sh MINUTES [TARGET...]
Runs each fuzz target of tests/fuzz (or those named) for MINUTES, one after the other, and prints executions,
coverage and the size of the corpus. What was found stays in build/fuzz/corpus/TARGET and is where the next run
begins; an input that makes a target fail is in build/fuzz/found. Needs clang (CXX, clang++ unless set).
Exit codes: 0 no target failed, 5 one failed, 2 bad arguments or no clang, 1 anything else.
HELP
    [ $# -gt 0 ] || exit 2
    exit 0
    ;;
esac
minutes=$1
shift
case "$minutes" in
  *[!0-9]* | 0) fail 2 "'$minutes' is no number of minutes (see --help)" ;;
esac
CXX=${CXX:-clang++}
CC=${CC:-clang}
export CXX CC
command -v "$CXX" >/dev/null || fail 2 "$CXX is missing (apt-get install clang)"
"$CXX" --version | grep -q clang || fail 2 "$CXX is no clang"

folder=$root/build/fuzz
configure asan -B "$folder" -DHEADROOM_INSTALL=OFF
known=$(cat "$folder/tests/fuzz/targets.txt")
for target in "$@"; do
  printf '%s\n' "$known" | grep -qx -- "$target" || fail 2 "unknown target '$target' ($(echo $known))"
done
[ $# -gt 0 ] || set -- $known
build fuzz "$@"

mkdir -p "$folder/found"
status=0
printf '%-22s %12s %9s %9s %8s  %s\n' target executions coverage features corpus verdict
for target in "$@"; do
  corpus=$folder/corpus/$target
  log=$folder/$target.log
  mkdir -p "$corpus"
  verdict='no fault'
  # Searches for a packing take two seconds at most, and forty times that under the sanitizers.
  timeout=25
  [ "$target" != graph_fuzz ] || timeout=300
  "$folder/tests/fuzz/$target" -max_total_time=$((minutes * 60)) -timeout=$timeout -rss_limit_mb=3072 -print_final_stats=1 \
    -artifact_prefix="$folder/found/$target-" "$corpus" "$folder/tests/fuzz/${target}_seeds" >"$log" 2>&1 || {
    verdict="FAULT, see $log"
    status=5
  }
  # "#9999 DONE   cov: 123 ft: 456 corp: 78/9Kb ..."
  last=$(grep -E 'cov: [0-9]+' "$log" | tail -n 1)
  number() { printf '%s\n' "$last" | sed -n "s/.* $1: \([0-9]*\).*/\1/p"; }
  printf '%-22s %12s %9s %9s %8s  %s\n' "$target" \
    "$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")" "$(number cov)" "$(number ft)" "$(number corp)" "$verdict"
done
exit $status
