#!/usr/bin/env bash
# Whether a program starts, serves and ends: its store, and a proxy over that by a host name, which a
# static program looks up by itself. Usage: scripts/check_release.sh PROGRAM
set -euo pipefail
program="$(readlink -f "$1")"
directory="$(mktemp -d)"
pids=()
finish() {
  [ ${#pids[@]} -eq 0 ] || kill -9 "${pids[@]}" 2>/dev/null || true
  rm -rf "$directory"
}
trap finish EXIT

fail() {
  echo "check_release: $1" >&2
  cat "$directory"/*.log >&2 || true
  exit 1
}

# Ports that nobody uses now; another try if somebody takes one before Keyway does.
free_port() {
  local port
  while :; do
    port=$((20000 + RANDOM % 12000))
    (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || break
  done
  echo "$port"
}

# What comes back for one line of the inline protocol.
say() {
  local port="$1" line="$2" reply
  exec 3<>"/dev/tcp/127.0.0.1/$port" || return 1
  printf '%s\r\n' "$line" >&3
  IFS= read -r -t 5 reply <&3 || reply=""
  case "$reply" in
    '$'*) IFS= read -r -t 5 reply <&3 ;;
  esac
  exec 3>&- 3<&-
  printf '%s\n' "${reply%$'\r'}"
}

http_status() {
  local reply
  exec 3<>"/dev/tcp/127.0.0.1/$1" || return 1
  printf 'GET %s HTTP/1.0\r\n\r\n' "$2" >&3
  IFS= read -r -t 5 reply <&3 || reply=""
  exec 3>&- 3<&-
  printf '%s\n' "$reply" | cut -d ' ' -f 2
}

# Starts it with what comes in on standard input, and waits until it is ready.
start() {
  local name="$1" admin="$2" pid
  cat >"$directory/$name.toml"
  "$program" serve "$directory/$name.toml" >"$directory/$name.log" 2>&1 &
  pid=$!
  pids+=("$pid")
  for _ in {1..200}; do
    kill -0 "$pid" 2>/dev/null || break
    [ "$(http_status "$admin" /readyz 2>/dev/null)" != 200 ] || return 0
    sleep 0.05
  done
  fail "$name does not get ready"
}

store=$(free_port)
far=$(free_port)
admin=$(free_port)
far_admin=$(free_port)
start store "$admin" <<EOF
[server]
admin = "tcp://127.0.0.1:$admin"
[[listener]]
bind = "tcp://127.0.0.1:$store"
pool = "near"
[pool.near]
kind = "store"
EOF
start proxy "$far_admin" <<EOF
[server]
admin = "tcp://127.0.0.1:$far_admin"
[[listener]]
bind = "tcp://127.0.0.1:$far"
pool = "far"
[pool.far]
kind = "sharded"
servers = ["localhost:$store:1 store"]
EOF
[ "$(say "$store" 'SET greeting hello')" = +OK ] || fail "the store takes no value"
[ "$(say "$store" 'GET greeting')" = hello ] || fail "the store does not give it back"
[ "$(say "$far" 'GET greeting')" = hello ] || fail "a server named localhost is not reached"
[ "$(say "$store" 'EVAL "return 6*7" 0')" = :42 ] || fail "scripts do not run"
"$program" top --once --interval 200ms --address "127.0.0.1:$admin" --address "127.0.0.1:$far_admin" >"$directory/top" ||
  fail "keyway top does not reach it"
grep -q near "$directory/top" || fail "keyway top does not show the store"
kill -TERM "${pids[@]}"
for pid in "${pids[@]}"; do
  status=0
  wait "$pid" || status=$?
  [ "$status" -eq 0 ] || fail "it ended with status $status"
done
pids=()
echo "check_release: $("$program" --version) starts, serves and ends"
