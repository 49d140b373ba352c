#!/bin/sh
# Builds the fuzz targets with clang and its address and undefined-behavior sanitizers, and runs them.
set -eu
. "$(dirname -- "$0")/common.sh"

case "${1:-}" in
  '' | -h | --help)
    cat <<'HELP'
usage: tools/fuzz.sh [--jobs N] MINUTES [TARGET...]
Runs each fuzz target of tests/fuzz (or those named) for MINUTES, N beside each other (1), and prints executions,
coverage and the size of the corpus. What was found stays in build/fuzz/corpus/TARGET and is where the next run
begins; an input that makes a target fail is in build/fuzz/found. Needs clang (CXX, clang++ unless set).
Exit codes: 0 no target failed, 5 one failed, 2 bad arguments or no clang, 1 anything else.
HELP
    [ $# -gt 0 ] || exit 2
    exit 0
    ;;
esac
jobs=1
if [ "$1" = --jobs ]; then
  jobs=${2:-}
  case "$jobs" in
    '' | *[!0-9]* | 0) fail 2 "'$jobs' is not a number of jobs (see --help)" ;;
  esac
  shift 2
fi
minutes=${1:-}
[ $# -eq 0 ] || shift
case "$minutes" in
  '' | *[!0-9]* | 0) fail 2 "'$minutes' is not a number of minutes (see --help)" ;;
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

# Ends with the target's own exit code.
fuzz() {
  corpus=$folder/corpus/$1
  mkdir -p "$corpus"
  # Searches for a packing take two seconds at most, and forty times that under the sanitizers.
  timeout=25
  [ "$1" != graph_fuzz ] || timeout=300
  "$folder/tests/fuzz/$1" -max_total_time=$((minutes * 60)) -timeout=$timeout -rss_limit_mb=3072 -print_final_stats=1 \
    -artifact_prefix="$folder/found/$1-" "$corpus" "$folder/tests/fuzz/${1}_seeds" >"$folder/$1.log" 2>&1
}

# report TARGET EXIT_CODE
report() {
  log=$folder/$1.log
  verdict='no fault'
  [ "$2" -eq 0 ] || verdict="FAULT, see $log"
  # "#9999 DONE   cov: 123 ft: 456 corp: 78/9Kb ..."
  last=$(grep -E 'cov: [0-9]+' "$log" | tail -n 1)
  number() { printf '%s\n' "$last" | sed -n "s/.* $1: \([0-9]*\).*/\1/p"; }
  printf '%-22s %12s %9s %9s %8s  %s\n' "$1" \
    "$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")" "$(number cov)" "$(number ft)" "$(number corp)" "$verdict"
}

mkdir -p "$folder/found"
status=0
printf '%-22s %12s %9s %9s %8s  %s\n' target executions coverage features corpus verdict
running= # "TARGET:PROCESS ..."
finish() {
  for each in $running; do
    result=0
    wait "${each#*:}" || result=5
    report "${each%:*}" $result
    [ $result -eq 0 ] || status=5
  done
  running=
  count=0
}
count=0
for target in "$@"; do
  fuzz "$target" &
  running="$running $target:$!"
  count=$((count + 1))
  [ $count -lt "$jobs" ] || finish
done
finish
exit $status
