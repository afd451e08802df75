#!/usr/bin/env bash
# Rewrites crates/command/src/table.rs from what a real redis-server says
# about its commands. Needs redis-server; run it when Redis has a new release.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

directory=$(mktemp -d)
server=
finish() {
  [ -z "$server" ] || kill "$server" 2>/dev/null || true
  rm -rf "$directory"
}
trap finish EXIT

cargo build --quiet --locked --package keyway-command --bin command-table
redis-server --port 0 --unixsocket "$directory/socket" --save '' --dir "$directory" \
  >"$directory/log" 2>&1 &
server=$!
until redis-cli -s "$directory/socket" PING >/dev/null 2>&1; do
  kill -0 "$server" 2>/dev/null || { cat "$directory/log" >&2; exit 1; }
done
"${CARGO_TARGET_DIR:-target}/debug/command-table" "$directory/socket" >"$directory/table.rs"
mv "$directory/table.rs" crates/command/src/table.rs
echo "crates/command/src/table.rs rewritten from $(redis-server --version)"
