#!/usr/bin/env bash
# Asks a redis-server of its own for its commands, and rewrites the command
# table and the support table in the documents from what it says.
set -euo pipefail
cd "$(dirname "$0")/.."
dir=$(mktemp -d)
redis-server --port 0 --unixsocket "$dir/redis.sock" --save "" --appendonly no --logfile "$dir/redis.log" &
server=$!
trap 'kill "$server" 2>/dev/null || true; wait "$server" || true; rm -rf "$dir"' EXIT
until [[ -S $dir/redis.sock ]]; do kill -0 "$server"; sleep 0.05; done
cargo run -q -p keyway-command --bin command-table -- "$dir/redis.sock" >"$dir/table.rs"
cp "$dir/table.rs" crates/command/src/table.rs
# A command new to the table does not compile before handling.rs decides it.
cargo run -q -p keyway-command --bin command-table -- --docs >"$dir/commands.md"
cp "$dir/commands.md" docs/commands.md
