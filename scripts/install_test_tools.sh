#!/usr/bin/env bash
# Installs the servers and clients the tests start, from Debian, where they
# are missing: redis-server, redis-tools, memcached, libmemcached-tools,
# nutcracker, python3-venv, sasl2-bin, PHP with both of its extensions for memcached, and
# chromium with a font that has the marks of plots, tmux, prometheus for its promtool, etcd and
# ZooKeeper.
set -euo pipefail

wanted=()
command -v redis-server >/dev/null || wanted+=(redis-server)
command -v redis-cli >/dev/null && command -v redis-benchmark >/dev/null || wanted+=(redis-tools)
command -v memcached >/dev/null || wanted+=(memcached)
command -v memccapable >/dev/null || wanted+=(libmemcached-tools)
PATH="$PATH:/usr/sbin" command -v nutcracker >/dev/null || wanted+=(nutcracker)
python3 -c 'import venv, ensurepip' >/dev/null 2>&1 || wanted+=(python3 python3-venv)
PATH="$PATH:/usr/sbin" command -v saslpasswd2 >/dev/null || wanted+=(sasl2-bin)
command -v chromium >/dev/null || wanted+=(chromium fonts-dejavu-core)
command -v tmux >/dev/null || wanted+=(tmux)
command -v promtool >/dev/null || wanted+=(prometheus)
command -v etcd >/dev/null || wanted+=(etcd-server)
[ -e /usr/share/java/zookeeper.jar ] && command -v java >/dev/null || wanted+=(zookeeper)
for extension in memcache memcached; do
  php -r "exit(extension_loaded('$extension') ? 0 : 1);" >/dev/null 2>&1 ||
    wanted+=(php-cli "php-$extension")
done
[ ${#wanted[@]} -gt 0 ] || exit 0

by_hand="install them by hand and run this again: apt-get install ${wanted[*]}"
if ! command -v apt-get >/dev/null; then
  echo "missing: ${wanted[*]}, and this is no Debian; $by_hand" >&2
  exit 1
fi
as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null || ! sudo -n true 2>/dev/null; then
    echo "missing: ${wanted[*]}, and there is neither root nor sudo without a password; $by_hand" >&2
    exit 1
  fi
  as_root=(sudo)
fi

# The tests start their own servers on free ports: the packages' services must
# not start, and would only take ports and memory.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
  printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee "$policy" >/dev/null
  "${as_root[@]}" chmod +x "$policy"
  trap '"${as_root[@]}" rm -f "$policy"' EXIT
fi
install=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive
  apt-get install -y -q --no-install-recommends "${wanted[@]}")
echo "installing from Debian: ${wanted[*]}"
if ! "${install[@]}"; then
  "${as_root[@]}" apt-get update -q
  if ! "${install[@]}"; then
    echo "cannot install ${wanted[*]}; $by_hand" >&2
    exit 1
  fi
fi
# The services of these are not to start with the machine either.
for pair in prometheus:prometheus etcd-server:etcd; do
  if [[ " ${wanted[*]} " == *" ${pair%%:*} "* ]] && command -v systemctl >/dev/null; then
    "${as_root[@]}" systemctl disable "${pair##*:}" >/dev/null 2>&1 || true
  fi
done
