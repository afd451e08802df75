#!/usr/bin/env bash
# A whole fleet on this machine until Ctrl-C: the control node of FILE, two groups of redis-servers (a
# primary and a replica each), and two proxies that serve by its document. `scripts/fleet.sh KEYWAY FILE`
# runs it; KEYWAY is the program. Everything is in a new folder, which the end removes.
#
# PORTS has other ports than these: of the admin address and the bus of control, of both proxies and
# their admin addresses, and of the redis-servers. The first two are those in docs/examples/fleet.toml.
set -euo pipefail
keyway=$(realpath "$1")
file=$2
read -ra ports <<<"${PORTS:-9390 6391 6401 9391 6402 9392 7401 7402 7403 7404}"
if ((${#ports[@]} != 10)); then
  echo "fleet.sh: PORTS has 10 ports" >&2
  exit 2
fi
for program in redis-server redis-cli; do
  if ! command -v "$program" >/dev/null; then
    echo "fleet.sh: $program is not installed: apt-get install redis-server redis-tools" >&2
    exit 2
  fi
done

home=$(mktemp -d "${TMPDIR:-/tmp}/keyway-fleet.XXXXXX")
pids=()
end() {
  trap - EXIT
  # A second Ctrl-C waits for nobody.
  trap 'kill -9 "${pids[@]}" 2>/dev/null || true' INT TERM
  if ((${#pids[@]})); then
    kill "${pids[@]}" 2>/dev/null || true
    wait "${pids[@]}" 2>/dev/null || true
  fi
  rm -rf "$home"
}
trap end EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# Starts a program in the folder. Its output goes to a log there. If the script is killed, so is it.
start() {
  local name=$1
  shift
  (cd "$home" && exec setpriv --pdeathsig TERM "$@") >"$home/$name.log" 2>&1 &
  pids+=($!)
}

# Waits until a command succeeds.
wait_for() {
  local what=$1 tries
  shift
  for ((tries = 0; tries < 300; tries++)); do
    if "$@" >/dev/null 2>&1; then return; fi
    sleep 0.1
  done
  echo "fleet.sh: $what; the logs:" >&2
  tail -n 5 "$home"/*.log >&2
  exit 1
}

answers() { [[ $(redis-cli -p "$1" ping) == PONG ]]; }
ctl() { "$keyway" ctl --admin "127.0.0.1:${ports[0]}" "$@"; }
are_current() { (($(ctl fleet | grep -c ' current ') == 2)); }
are_healthy() { (($(ctl groups | grep -c 'healthy') == 2)); }

# The pools, with this timeout: two groups of servers, and one pool that leads to both.
pools() {
  cat <<TOML
[pool.main]
kind = "prefix"
routes = [{ prefix = "b:", pool = "b" }]
default = "a"
TOML
  group a 6 "$1"
  group b 8 "$1"
}

group() {
  cat <<TOML
[pool.$1]
kind = "replicated"
servers = ["127.0.0.1:${ports[$2]}", "127.0.0.1:${ports[$2 + 1]}"]
failover = { down_after = "2s" }
wait_for_primary = "10s"
timeout = "$3"
TOML
}

(umask 077 && head -c 24 /dev/urandom | base64 >"$home/token")
sed -e "s/127\.0\.0\.1:9390/127.0.0.1:${ports[0]}/" -e "s/127\.0\.0\.1:6391/127.0.0.1:${ports[1]}/" \
  "$file" >"$home/control.toml"
cluster=$(sed -n 's/^cluster = "\([^"]*\)".*/\1/p' "$file")
for nth in 1 2; do
  {
    cat <<TOML
[server]
admin = "tcp://127.0.0.1:${ports[1 + 2 * nth]}"
[control]
cluster = "$cluster"
id = "z$nth.proxy.0.$nth"
urls = ["tcp://127.0.0.1:${ports[1]}"]
token_file = "token"
state_file = "proxy-$nth.state"
pools = ["main", "a", "b"]
[[listener]]
bind = "tcp://127.0.0.1:${ports[2 * nth]}"
pool = "main"
TOML
    pools 1s
  } >"$home/proxy-$nth.toml"
done
pools 2s >"$home/pools.toml"

redis() { start "redis-$1" redis-server --port "$1" --bind 127.0.0.1 --save '' --dbfilename "$1.rdb" --dir "$home" "${@:2}"; }
for group in 6 8; do
  redis "${ports[group]}"
  redis "${ports[group + 1]}" --replicaof 127.0.0.1 "${ports[group]}"
done
for server in 6 7 8 9; do
  wait_for "redis-server does not answer at ${ports[server]}" answers "${ports[server]}"
done
start control "$keyway" control control.toml
for nth in 1 2; do start "proxy-$nth" "$keyway" serve "proxy-$nth.toml"; done
wait_for "the proxies do not join" are_current
ctl apply "$home/pools.toml" --base 0
wait_for "the proxies do not serve by the document" are_current
wait_for "control does not find a primary and a replica in each group" are_healthy

cat <<TEXT

A fleet runs: control at 127.0.0.1:${ports[0]}, proxies at 127.0.0.1:${ports[2]} and 127.0.0.1:${ports[4]}, redis-servers at
${ports[6]} and ${ports[8]} with replicas at ${ports[7]} and ${ports[9]}. Files and logs are in $home.
Ctrl-C ends everything and removes the files. To try:

  redis-cli -p ${ports[2]} set greeting hello; redis-cli -p ${ports[4]} get greeting
  keyway ctl --admin 127.0.0.1:${ports[0]} fleet
  keyway ctl --admin 127.0.0.1:${ports[0]} history

Keys that begin with b: are in group b, all others in group a. Kill the primary of a (kill ${pids[0]}), and its replica takes over
within some 3 s; b changes its primary by hand without a failed request:

  keyway ctl --admin 127.0.0.1:${ports[0]} groups
  keyway ctl --admin 127.0.0.1:${ports[0]} failover b
  keyway ctl --admin 127.0.0.1:${ports[0]} events

Change $home/pools.toml, and roll it out to one proxy first:

  keyway ctl --admin 127.0.0.1:${ports[0]} apply $home/pools.toml --base 1 --share 50% --watch 30s
  keyway ctl --admin 127.0.0.1:${ports[0]} rollout
  keyway ctl --admin 127.0.0.1:${ports[0]} rollout finish

Kill control (kill ${pids[4]}): the proxies serve on. docs/control.md has the rest.
keyway is $keyway.
TEXT
while :; do
  # Control may be killed, as is told above. The fleet ends with its last process.
  wait -n || true
  alive=()
  for pid in "${pids[@]}"; do
    if kill -0 "$pid" 2>/dev/null; then alive+=("$pid"); else echo "process $pid has ended"; fi
  done
  pids=("${alive[@]}")
  ((${#pids[@]})) || exit 0
done
