#!/usr/bin/env bash
# Builds the wheel of clients/python, installs it beside the stock clients and runs its tests against a
# redis-server and a Keyway, over each transport, or those that TRANSPORTS names.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

target="${CARGO_TARGET_DIR:-$PWD/target}"
python="$(scripts/python_venv.sh)"
wheels="$target/wheels"
rm -rf "$wheels"
"$python" -m maturin build --quiet --locked --profile "${WHEEL_PROFILE:-dev}" \
  --manifest-path clients/python/Cargo.toml --target-dir "$target/python" --out "$wheels"
"$python" -m pip install --quiet --force-reinstall --no-deps "$wheels"/*.whl

directory="$(mktemp -d)"
servers=()
finish() {
  for server in "${servers[@]}"; do kill "$server" 2>/dev/null || true; done
  wait
  rm -rf "$directory"
}
trap finish EXIT

redis-server --port 0 --unixsocket "$directory/redis.sock" --save '' --dir "$directory" \
  >"$directory/redis.log" &
servers+=($!)

check() {
  local transport="$1" url="$2" path="$3"
  [[ " ${TRANSPORTS:-unix shm} " == *" $transport "* ]] || return 0
  for _ in $(seq 100); do
    [ -S "$path" ] && break
    sleep 0.1
  done
  echo "python client over $transport"
  KEYWAY_URL="$url" KEYWAY_TRANSPORT="$transport" timeout 120 "$python" -m unittest -q clients/python/tests/test_client.py || {
    # What the servers have to say of it.
    tail -n 20 "$directory"/*.log >&2
    return 1
  }
}

keyway="${KEYWAY:-$target/debug/keyway}"
[ -x "$keyway" ] || cargo build --quiet --locked --package keyway
# No admin listener: its usual port may be another Keyway's.
cat >"$directory/keyway.toml" <<END
[server]
admin = "off"

[[listener]]
bind = "shm://$directory/keyway.shm"
pool = "local"

[pool.local]
kind = "store"
END
"$keyway" serve "$directory/keyway.toml" 2>"$directory/keyway.log" &
servers+=($!)

check unix "unix://$directory/redis.sock" "$directory/redis.sock"
check shm "shm://$directory/keyway.shm" "$directory/keyway.shm"
check unix "unix://$directory/keyway.shm" "$directory/keyway.shm"
