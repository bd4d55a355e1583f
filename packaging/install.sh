#!/bin/sh
# Installs Millstream from the unpacked archive, or removes it.
set -eu

usage() {
  cat <<'TEXT'
usage: ./install.sh [--prefix DIR] [--systemd]   install below DIR (/usr/local if not given)
       ./install.sh [--prefix DIR] --remove      remove what was installed there; data and configuration stay

--systemd, as root, also adds the user millstream, /etc/millstream.toml if it is missing, and the service, which it does not
start. DESTDIR in the environment is put before every path that is written.
TEXT
}

prefix=/usr/local
action=install
systemd=
while [ $# -gt 0 ]; do
  case $1 in
    --prefix)
      [ $# -ge 2 ] || { usage >&2; exit 2; }
      prefix=$2
      shift
      ;;
    --prefix=*) prefix=${1#--prefix=} ;;
    --systemd) systemd=yes ;;
    --remove) action=remove ;;
    --help | -h) usage; exit 0 ;;
    *) echo "install.sh: '$1' is not an option" >&2; usage >&2; exit 2 ;;
  esac
  shift
done
case $prefix in
  /*) ;;
  *) echo "install.sh: prefix '$prefix' is not an absolute path; use one such as $PWD/$prefix" >&2; exit 2 ;;
esac

here=$(cd "$(dirname "$0")" && pwd)
root=${DESTDIR:-}
target=$root$prefix
unit=$root/etc/systemd/system/millstream.service
running_systemd() { [ -z "$root" ] && [ -d /run/systemd/system ]; }

if [ "$action" = remove ]; then
  if [ -e "$unit" ]; then
    ! running_systemd || systemctl disable --now millstream.service
    rm -f "$unit"
    ! running_systemd || systemctl daemon-reload
  fi
  rm -f "$target/bin/millstream" "$target/share/bash-completion/completions/millstream" \
    "$target/share/zsh/site-functions/_millstream" "$target/share/fish/vendor_completions.d/millstream.fish" \
    "$target/share/man/man1/millstream.1" "$target"/share/man/man1/millstream-*.1
  rm -rf "$target/share/doc/millstream"
  echo "removed from $target; data and configuration are where they were"
  exit 0
fi

mkdir -p "$target/bin" "$target/share/man/man1" "$target/share/bash-completion/completions" \
  "$target/share/zsh/site-functions" "$target/share/fish/vendor_completions.d" "$target/share/doc/millstream"
# A running program keeps its file: the new one takes the name at once.
cp "$here/bin/millstream" "$target/bin/.millstream.new"
chmod 755 "$target/bin/.millstream.new"
mv -f "$target/bin/.millstream.new" "$target/bin/millstream"
cp "$here"/share/man/man1/*.1 "$target/share/man/man1/"
cp "$here/share/completions/millstream.bash" "$target/share/bash-completion/completions/millstream"
cp "$here/share/completions/_millstream" "$target/share/zsh/site-functions/_millstream"
cp "$here/share/completions/millstream.fish" "$target/share/fish/vendor_completions.d/millstream.fish"
cp -R "$here/LICENSE" "$here/third_party_notices.txt" "$here/README.md" "$here/CHANGELOG.md" "$here/docs" \
  "$here/packaging" "$target/share/doc/millstream/"
echo "installed $target/bin/millstream"

[ -n "$systemd" ] || exit 0
if [ -z "$root" ] && [ "$(id -u)" -ne 0 ]; then
  echo "install.sh: --systemd needs root: run it again with sudo" >&2
  exit 1
fi
if [ -z "$root" ] && ! id millstream >/dev/null 2>&1; then
  useradd --system --user-group --home-dir /var/lib/millstream --no-create-home --shell /usr/sbin/nologin millstream
fi
if [ ! -e "$root/etc/millstream.toml" ]; then
  mkdir -p "$root/etc"
  # Tokens will stand in it.
  (umask 027 && cp "$here/packaging/millstream.toml" "$root/etc/millstream.toml")
  chmod 640 "$root/etc/millstream.toml"
  [ -n "$root" ] || chgrp millstream "$root/etc/millstream.toml"
fi
mkdir -p "$(dirname "$unit")"
sed "s|^ExecStart=/usr/bin/|ExecStart=$prefix/bin/|" "$here/packaging/millstream.service" >"$unit"
! running_systemd || systemctl daemon-reload
echo "start it with: systemctl enable --now millstream"
