#!/usr/bin/env bash
# The simulator over SEEDS seeds starting at FROM. A failing seed is printed
# with the command that replays it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec cargo run --release --locked --package keyway-sim -- --seeds "${1:-500}" --from "${2:-0}"
