#!/bin/sh
# Installs the missing tools that the build needs, on Debian 12+ and Ubuntu 22.04+; elsewhere prints what to install.
set -eu
. "$(dirname -- "$0")/common.sh"

case "${1:-}" in
  -h | --help)
    cat <<'HELP'
usage: tools/setup.sh [PACKAGE...]
Installs with apt what is missing to build Headroom (Debian 12 or later, Ubuntu 22.04 or later; root or sudo),
and the packages named.
Does nothing, and asks for no rights, when all is there. Elsewhere it lists what to install.
Exit codes: 0 ready, 1 the installation failed, 2 something has to be installed by hand.
HELP
    exit 0
    ;;
  -*) fail 2 "unknown argument '$1' (see --help)" ;;
esac

needed='g++ 12 or later, CMake 3.22 or later, Ninja, git, ca-certificates;
  better also, or CMake downloads them: Eigen 3.4, CLI11 2.1, GoogleTest 1.11, nlohmann-json 3.10, fmt 9,
  zlib; for gzipped files at twice the speed, ISA-L; for training over processes, OpenMPI 4'

version_at_least() { [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]; }
cmake_version() { cmake --version 2>/dev/null | sed -n '1s/.*version \([0-9.]*\).*/\1/p'; }
tools_ready() {
  choose_compiler && command -v ninja >/dev/null && command -v git >/dev/null &&
    version_at_least "$(cmake_version)" 3.22
}

by_hand() {
  say "$1; please install:" >&2
  printf '  %s\n' "$needed" >&2
  exit 2
}

id=unknown
VERSION_ID=0
if [ -r /etc/os-release ]; then
  . /etc/os-release
  id=${ID:-unknown}
fi
if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
  if tools_ready; then
    say "no apt here, but compiler, CMake and Ninja are; CMake downloads the libraries that it does not find"
    exit 0
  fi
  by_hand "this system ($id) has no apt"
fi
case "$id" in
  debian) oldest=12 ;;
  ubuntu) oldest=22.04 ;;
  *) oldest=0 ;; # a relative of theirs: what counts is what apt has
esac
if ! version_at_least "$VERSION_ID" "$oldest" && ! tools_ready; then
  by_hand "$id $VERSION_ID is older than $oldest"
fi

packages='cmake ninja-build git ca-certificates libeigen3-dev libcli11-dev libgtest-dev nlohmann-json3-dev libfmt-dev
  zlib1g-dev libopenmpi-dev openmpi-bin'
packages="$packages $*"
faster=libisal-dev # nothing is missing without it, but it is installed beside what is
if [ "$id" = ubuntu ] && [ "$VERSION_ID" = 22.04 ]; then
  packages="g++-12 $packages" # its default is g++ 11
elif [ -z "${CXX:-}" ]; then
  packages="g++ $packages"
fi
installed() { dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null | grep -qx installed; }
missing=
for package in $packages; do
  installed "$package" || missing="$missing $package"
done
missing=${missing# }
if [ -z "$missing" ]; then
  tools_ready || by_hand "all packages are installed, yet compiler, CMake or Ninja are not usable or too old"
  say "nothing is missing"
  exit 0
fi

if [ "$(id -u)" -eq 0 ]; then
  as_root=
elif command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [ -t 0 ]; }; then
  as_root=sudo
elif tools_ready; then
  say "not root and no sudo: CMake downloads what it does not find of: $missing"
  exit 0
else
  by_hand "missing ($missing), and neither root nor sudo is at hand"
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
# A wrong clock must not make the package lists "not valid yet".
apt() {
  $as_root env DEBIAN_FRONTEND=noninteractive TERM="${TERM:-dumb}" apt-get -q -y -o Dpkg::Use-Pty=0 \
    -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 -o Acquire::Check-Date=false "$@" </dev/null >"$log" 2>&1 || {
    cat "$log" >&2
    fail 1 "apt-get $1 failed (above)"
  }
}
say "reading the package lists"
apt update
available=
for package in $faster; do
  installed "$package" || missing="$missing $package"
done
for package in $missing; do
  if [ -n "$(apt-cache policy "$package" 2>/dev/null | sed -n 's/^ *Candidate: \([^(].*\)/\1/p')" ]; then
    available="$available $package"
  else
    say "this distribution has no $package: CMake downloads a pinned version if it is needed, or the build goes without"
  fi
done
say "installing$available"
# shellcheck disable=SC2086  # a list of words
apt install --no-install-recommends $available
tools_ready || by_hand "after the installation compiler, CMake or Ninja are still missing or too old"
say "ready: $CXX $($CXX -dumpfullversion 2>/dev/null || echo '?'), CMake $(cmake_version)"
