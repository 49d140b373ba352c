# shellcheck shell=sh
# Clean systems for the scripts that check on them; sourced after common.sh, POSIX sh. They need root, debootstrap, unshare
# and the network. $system is the folder of the system, $mirror where to install from (empty: as this machine).

# Where this machine gets a Debian's or an Ubuntu's packages; nothing where it is another system.
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
  from=${mirror:-$(mirror_of "${1%-*}")}
  # shellcheck disable=SC2086  # a mirror or nothing
  debootstrap --variant=minbase --components=$components --include=$2 $suite "$system" $from || return 1
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
