#!/usr/bin/env bash
# The simulator over SEEDS seeds starting at FROM. A failing seed is printed
# with the command that replays it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
seeds="${1:-500}"
from="${2:-0}"
KEYWAY_SIM_SEEDS="$seeds" KEYWAY_SIM_FROM="$from" \
  cargo test --locked --package keyway-sim --test seeds -- --nocapture
