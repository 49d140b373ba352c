#!/bin/sh
# Runs README's commands, as written there, on clean systems, and prints the result of each.
set -eu
. "$(dirname -- "$0")/common.sh"
. "$(dirname -- "$0")/clean_system.sh"

usage() {
  cat <<'HELP'
usage: tools/check_machines.sh [--only demo|test] [--keep] [--root DIR] [--mirror URL] [MACHINE...]
For each machine (debian-12, debian-13, ubuntu-22.04, ubuntu-24.04; without arguments the two Debians) it makes a
clean system of the essential packages, git and ca-certificates, clones the last commit into it, and runs there
the commands of README's section on the start. What is not committed is left out.
  --only demo|test  one of the two commands
  --keep            leave the systems there, to look around in; they are removed otherwise
  --root DIR        make them in this folder, which needs 5 GB for each (otherwise a new one in /var/tmp)
  --mirror URL      install from this mirror (otherwise a Debian from where this machine gets its packages); an
                    Ubuntu needs it where Ubuntu's keys are missing, and its packages are not verified then
Logs are in build/machines. Needs root, debootstrap, unshare and the network.
Exit codes: 0 all passed, 5 a command failed, 2 bad arguments or something is missing, 1 anything else.
HELP
}

only=
keep=
while [ $# -gt 0 ]; do
  take_argument "$@"
  if [ $taken -eq 0 ]; then
    case "$1" in
      --only)
        [ $# -ge 2 ] || fail 2 "$1 needs a value (see --help)"
        case "$2" in
          demo | test) only=$2 ;;
          *) fail 2 "--only: unknown command '$2' (demo, test)" ;;
        esac
        taken=2
        ;;
      --keep)
        keep=1
        taken=1
        ;;
      *) fail 2 "unknown argument '$1' (see --help)" ;;
    esac
  fi
  shift $taken
done
machines=${machines:-debian-12 debian-13}

require_tools git
commands=$(sed -n 's/^    \(tools\/[a-z]*\.sh\)\( *#.*\)*$/\1/p' "$root/README.md" | tr '\n' ' ')
[ "$commands" = 'tools/demo.sh tools/test.sh ' ] ||
  fail 1 "README.md gives other commands than tools/demo.sh and tools/test.sh: $commands"
[ -z "$(git -C "$root" status --porcelain)" ] || say "what is not committed is left out"

logs=$root/build/machines
mkdir -p "$logs"
if [ -n "$folder" ]; then
  mkdir -p "$folder"
  folder=$(CDPATH='' cd -- "$folder" && pwd)
  own_folder=
else
  folder=$(mktemp -d /var/tmp/headroom-machines.XXXXXX)
  own_folder=1
fi
for machine in $machines; do
  [ ! -e "$folder/$machine" ] || fail 2 "$folder/$machine is there already: a machine has to be clean"
done

# Everything is mounted in a namespace of the command's own, below.
system=
clean() {
  [ -n "$keep" ] || [ -z "$system" ] || rm -rf --one-file-system "$system"
  system=
}
end() {
  clean
  [ -z "$own_folder" ] || rmdir "$folder" 2>/dev/null || say "kept in $folder"
}
trap end EXIT
trap 'exit 1' HUP INT TERM

status=0
results=
for machine in $machines; do
  system=$folder/$machine
  log=$logs/$machine.log
  say "$machine: making a clean system"
  if ! make_system "$machine" git,ca-certificates >"$log" 2>&1 ||
    ! git clone -q --no-hardlinks "$root" "$system/root/headroom" >>"$log" 2>&1; then
    tail -n 20 "$log" >&2
    fail 1 "$machine: no system could be made (above, and in $log)"
  fi
  for command in $commands; do
    name=$(basename -- "$command" .sh)
    [ -z "$only" ] || [ "$only" = "$name" ] || continue
    log=$logs/$machine-$name.log
    say "$machine: $command"
    began=$(date +%s)
    if in_system "cd /root/headroom && $command" >"$log" 2>&1; then
      verdict=pass
    else
      verdict=FAIL
      status=5
      tail -n 30 "$log"
    fi
    tenths=$((($(date +%s) - began + 3) / 6))
    result=$(printf '%-12s  %-13s  %s  %3d.%d min' "$machine" "$command" $verdict $((tenths / 10)) $((tenths % 10)))
    say "$result"
    results="$results$result
"
  done
  clean
done
printf '\n%s' "$results"
say "commit $(git -C "$root" rev-parse --short HEAD) on $(nproc) cores; logs in $logs"
exit $status
