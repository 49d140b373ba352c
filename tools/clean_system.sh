# shellcheck shell=sh
# Clean systems for the scripts that check on them; sourced after common.sh, POSIX sh. They need root, debootstrap, unshare
# and the network. $system is the folder of the system, $mirror where to install from (empty: as this machine).

machines=
folder=
mirror=
# take_argument ARGUMENTS: notes the first of them if all these scripts know it, in $machines, $folder or $mirror; $taken is how
# many words that was, 0 for another argument.
take_argument() {
  taken=1
  case "$1" in
    --root | --mirror)
      [ $# -ge 2 ] || fail 2 "$1 needs a value (see --help)"
      if [ "$1" = --root ]; then folder=$2; else mirror=$2; fi
      taken=2
      ;;
    -h | --help)
      usage
      exit 0
      ;;
    debian-12 | debian-13 | ubuntu-22.04 | ubuntu-24.04) machines="$machines $1" ;;
    *) taken=0 ;;
  esac
}

# require_tools [TOOL...] checks for the tools that clean systems need, and these.
require_tools() {
  [ "$(id -u)" -eq 0 ] || fail 2 "needs root"
  for tool in debootstrap unshare "$@"; do
    command -v "$tool" >/dev/null || fail 2 "$tool is missing (apt-get install $tool)"
  done
}

# Prints the mirror of a Debian's or an Ubuntu's packages that this machine uses; nothing on another system.
mirror_of() {
  (
    . /etc/os-release
    [ "${ID:-}" = "$1" ] || exit 0
    # shellcheck disable=SC2016  # apt-get's own variables
    apt-get indextargets --format '$(RELEASE) $(COMPONENT) $(REPO_URI)' 'Created-By: Packages' |
      sed -n "s/^${VERSION_CODENAME:-} main //p" | head -n 1
  )
}

# make_system MACHINE PACKAGES: a clean one in $system, of the essential packages and those named, that reaches the
# network as this one does.
make_system() {
  case "$1" in
    debian-12) suite=bookworm components=main ;;
    debian-13) suite=trixie components=main ;;
    ubuntu-22.04) suite=jammy components=main,universe ;;
    ubuntu-24.04) suite=noble components=main,universe ;;
  esac
  # All systems of a family have one script; a debootstrap that is older than a system lacks that system's name.
  case "$1" in
    debian-*) script=sid ;;
    *) script=gutsy ;;
  esac
  debootstrap --variant=minbase --components=$components "--include=$2" "$suite" "$system" \
    "${mirror:-$(mirror_of "${1%-*}")}" "$script" || return 1
  cp /etc/resolv.conf /etc/hosts "$system/etc/"
  apt-config dump | grep -iE '^Acquire::[a-z]+::proxy' >"$system/etc/apt/apt.conf.d/99proxy" || true
  if [ -f /etc/ssl/certs/ca-certificates.crt ]; then
    cp /etc/ssl/certs/ca-certificates.crt "$system/etc/ssl/certs/"
  fi
}

# in_system COMMAND: as in a new session there, with processes and mounts of its own that end with it.
in_system() {
  # shellcheck disable=SC2016  # for the shell inside
  unshare --mount --pid --kill-child --propagation private sh -eu -c '
    mount -t proc proc "$1/proc"
    mount -t sysfs -o ro sysfs "$1/sys"
    mount -t devpts -o newinstance,ptmxmode=0666 devpts "$1/dev/pts"
    mkdir -p "$1/dev/shm"
    mount -t tmpfs tmpfs "$1/dev/shm"
    exec chroot "$1" /usr/bin/env -i HOME=/root TERM=dumb ${http_proxy:+http_proxy="$http_proxy"} \
      ${https_proxy:+https_proxy="$https_proxy"} ${no_proxy:+no_proxy="$no_proxy"} \
      PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin /bin/sh -c "$2"
  ' sh "$system" "$1" </dev/null
}
