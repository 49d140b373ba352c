#!/bin/sh
# Installs one of our .deb files on clean systems, uses it, removes it, and checks that nothing is left.
set -eu
. "$(dirname -- "$0")/common.sh"
. "$(dirname -- "$0")/clean_system.sh"

usage() {
  cat <<'HELP'
usage: tools/check_package.sh [--root DIR] [--mirror URL] FILE.deb [MACHINE...]
On each machine (debian-12, debian-13, ubuntu-22.04, ubuntu-24.04; without arguments the two Debians), made clean of the
essential packages: apt installs the package, `headroom --version` and a prediction run, a C program is compiled and linked
against it (in the first machine), apt removes it, and no file of it is left.
  --root DIR    make the systems in this folder (otherwise a new one in /var/tmp)
  --mirror URL  install from this mirror (otherwise a Debian from where this machine gets its packages)
Needs root, debootstrap, unshare and the network.
Exit codes: 0 all passed, 5 a check failed, 2 bad arguments or something is missing, 1 anything else.
HELP
}

package=
while [ $# -gt 0 ]; do
  take_argument "$@"
  if [ $taken -eq 0 ]; then
    case "$1" in
      *.deb) package=$1 ;;
      *) fail 2 "unknown argument '$1' (see --help)" ;;
    esac
    taken=1
  fi
  shift $taken
done
[ -n "$package" ] || fail 2 "no package given (see --help)"
[ -r "$package" ] || fail 2 "$package: cannot be read"
require_tools
machines=${machines:-debian-12 debian-13}
if [ -n "$folder" ]; then
  mkdir -p "$folder"
else
  folder=$(mktemp -d /var/tmp/headroom-packages.XXXXXX)
fi

system=
clean() {
  [ -z "$system" ] || rm -rf --one-file-system "$system"
  system=
}
trap 'clean; rmdir "$folder" 2>/dev/null || true' EXIT
trap 'exit 1' HUP INT TERM

status=0
compiles=1
for machine in $machines; do
  system=$folder/$machine
  log=$folder/$machine.log
  say "$machine: making a clean system"
  make_system "$machine" ca-certificates >"$log" 2>&1 || {
    tail -n 20 "$log" >&2
    fail 1 "$machine: no system could be made (above, and in $log)"
  }
  cp "$package" "$system/root/headroom.deb"
  cp "$root/tests/install/program/take_blocks.c" "$system/root/"
  cat >"$system/root/check.sh" <<'INSIDE'
set -eux
apt="apt-get -q -y -o Dpkg::Use-Pty=0 -o Acquire::Check-Date=false"
export DEBIAN_FRONTEND=noninteractive
$apt update
files() { find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /tmp -o -path /root -o -path /run -o \
  -path /var/lib/apt -o -path /var/cache -o -path /var/log -o -path /var/lib/dpkg \) -prune -o -print | sort; }
if [ "$1" = 1 ]; then $apt install --no-install-recommends gcc libc6-dev; fi
# Installs the package's dependencies first, so that only its own files count.
$apt install --no-install-recommends $(dpkg-deb -f /root/headroom.deb Depends | tr ',' '\n' | sed 's/(.*//;s/|.*//')
files >/tmp/before
$apt install --no-install-recommends /root/headroom.deb
headroom --version
headroom predict --device rtx-3090 --batch 64 | head -n 1
headroom strategies | head -n 3
train_mnist --device sim --strategy allow-growth --epochs 1 --steps 3
ldd "$(command -v headroom)"
if ldd "$(command -v headroom)" | grep 'not found'; then exit 1; fi
if [ "$1" = 1 ]; then
  gcc -std=c99 -Wall -Werror /root/take_blocks.c -o /root/take_blocks -lheadroom
  /root/take_blocks sim:rtx-3090
fi
$apt remove headroom
files >/tmp/after
diff /tmp/before /tmp/after
if [ -e /usr/bin/headroom ]; then exit 1; fi
INSIDE
  if in_system "sh /root/check.sh $compiles" >>"$log" 2>&1; then
    say "$machine: pass ($(grep -m 1 '^headroom [0-9]' "$log"))"
    rm -f "$log"
  else
    say "$machine: FAIL, see $log"
    tail -n 20 "$log"
    status=5
  fi
  compiles=0
  clean
done
exit $status
