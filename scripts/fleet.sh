#!/usr/bin/env bash
# A whole fleet on this machine until Ctrl-C: the control node of FILE, two groups of redis-servers (a
# primary and a replica each), and two proxies that serve by its document. `scripts/fleet.sh KEYWAY FILE`
# runs it; KEYWAY is the program. Everything is in a new folder, which the end removes.
#
# PORTS has other ports than these: of the admin address and the bus of control, of both proxies and
# their admin addresses, and of the redis-servers. The first two are those in docs/examples/fleet.toml.
set -euo pipefail
refuse() {
  printf 'fleet.sh: %s\n' "$@" >&2
  exit 2
}
if (($# != 2)); then
  refuse "usage: scripts/fleet.sh KEYWAY FILE" \
    "KEYWAY is the program, such as target/release/keyway; FILE is docs/examples/fleet.toml"
fi
if [[ ! -f $1 || ! -x $1 ]]; then
  refuse "$1 is not a program: build it with cargo build --release, or use make run FILE=$2"
fi
if [[ ! -r $2 ]]; then
  refuse "$2 cannot be read: FILE is the file of a control node, such as docs/examples/fleet.toml"
fi
keyway=$(realpath "$1")
file=$2
if [[ $("$keyway" --version 2>&1) != "keyway "* ]]; then
  refuse "$keyway is not Keyway: \`$keyway --version\` does not say so"
fi
read -ra ports <<<"${PORTS:-9390 6391 6401 9391 6402 9392 7401 7402 7403 7404}"
if ((${#ports[@]} != 10)); then
  refuse "PORTS has 10 ports"
fi
for program in redis-server redis-cli; do
  if ! command -v "$program" >/dev/null; then
    refuse "$program is not installed: apt-get install redis-server redis-tools"
  fi
done
taken=()
for port in "${ports[@]}"; do
  if (: <>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then taken+=("$port"); fi
done
if ((${#taken[@]})); then
  refuse "another program, or another fleet, listens at these ports of 127.0.0.1: ${taken[*]}" \
    "end it, or set PORTS to 10 others: PORTS=\"${ports[*]}\""
fi

home=$(mktemp -d "${TMPDIR:-/tmp}/keyway-fleet.XXXXXX")
pids=()
# Processes that run, each with its name, by their ids.
declare -A names=()

# Adds the proxies that upgrades have started. They run in the folder and are no children of the script.
follow() {
  local cwd pid words
  for cwd in /proc/[0-9]*/cwd; do
    pid=${cwd//[^0-9]/}
    if [[ ! $cwd -ef $home || -v names[$pid] ]]; then continue; fi
    { mapfile -d '' -t words <"/proc/$pid/cmdline"; } 2>/dev/null || continue
    if [[ ${words[0]:-} == "$keyway" && ${words[1]:-} == serve ]]; then
      names[$pid]=${words[2]%.toml}
    fi
  done
}

# Returns whether a process runs. Of one that has ended, and nobody has waited for, there is no folder.
runs() { [[ /proc/$1/cwd -ef $home ]]; }

end() {
  trap - EXIT
  # A second Ctrl-C waits for nobody.
  trap 'kill -9 "${!names[@]}" 2>/dev/null || true' INT TERM
  local -A told=()
  local pid running=1
  # A proxy that an upgrade starts just now is found in a later round.
  while ((running)); do
    follow
    running=0
    for pid in "${!names[@]}"; do
      if ! runs "$pid"; then continue; fi
      running=1
      if [[ ! -v told[$pid] ]]; then kill "$pid" 2>/dev/null || true; fi
      told[$pid]=1
    done
    if ((running)); then sleep 0.1; fi
  done
  rm -rf "$home"
}
trap end EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# Starts a program in the folder. Its output goes to a log there. If the script is killed, so is the program.
start() {
  local name=$1
  shift
  (cd "$home" && exec setpriv --pdeathsig TERM "$@") >"$home/$name.log" 2>&1 &
  pids+=($!)
  names[$!]=$name
}

# Waits until a command succeeds. A program that has ended ends the wait.
wait_for() {
  local what=$1 tries pid
  shift
  for ((tries = 0; tries < 300; tries++)); do
    if "$@" >/dev/null 2>&1; then return; fi
    for pid in "${pids[@]}"; do
      if ! kill -0 "$pid" 2>/dev/null; then
        what="${names[$pid]} has ended"
        tries=300
      fi
    done
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

# The commands below are to work as they are.
shown=keyway
path=$(printf '\n  PATH=%q:"$PATH"' "$(dirname "$keyway")")
if [[ $(basename "$keyway") != keyway ]]; then
  shown=$(printf '%q' "$keyway")
  path=
fi
cat <<TEXT

A fleet runs: control at 127.0.0.1:${ports[0]}, proxies at 127.0.0.1:${ports[2]} and 127.0.0.1:${ports[4]}, redis-servers at
${ports[6]} and ${ports[8]} with replicas at ${ports[7]} and ${ports[9]}. Files and logs are in $home.
Ctrl-C ends everything and removes the files. To try, in another terminal:
$path
  redis-cli -p ${ports[2]} set greeting hello; redis-cli -p ${ports[4]} get greeting
  $shown ctl --admin 127.0.0.1:${ports[0]} fleet
  $shown ctl --admin 127.0.0.1:${ports[0]} history

Keys that begin with b: are in group b, all others in group a. Kill the primary of a (kill ${pids[0]}), and its replica takes over
within some 3 s; b changes its primary by hand without a failed request:

  $shown ctl --admin 127.0.0.1:${ports[0]} groups
  $shown ctl --admin 127.0.0.1:${ports[0]} failover b
  $shown ctl --admin 127.0.0.1:${ports[0]} events

Change $home/pools.toml, and roll it out to one proxy first:

  $shown ctl --admin 127.0.0.1:${ports[0]} apply $home/pools.toml --base 1 --share 50% --watch 30s
  $shown ctl --admin 127.0.0.1:${ports[0]} rollout
  $shown ctl --admin 127.0.0.1:${ports[0]} rollout finish

Replace both proxies by new processes, as for an update of the program. No client is refused:

  $shown ctl --admin 127.0.0.1:${ports[0]} --members all upgrade

Kill control (kill ${pids[4]}): the proxies serve on. docs/control.md has the rest.
TEXT
while :; do
  # Control may be killed, as is told above. The fleet ends with its last process.
  sleep 0.5
  follow
  for pid in "${!names[@]}"; do
    if runs "$pid"; then continue; fi
    name=${names[$pid]}
    unset "names[$pid]"
    told="$name (process $pid) has ended"
    for other in "${!names[@]}"; do
      if [[ ${names[$other]} == "$name" ]]; then told="$name is process $other now; process $pid has ended"; fi
    done
    echo "$told"
  done
  ((${#names[@]})) || exit 0
done
