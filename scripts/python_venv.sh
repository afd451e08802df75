#!/usr/bin/env bash
# Makes the Python environment of the stock-client tests, or of those in the folder
# that is named, and prints the path of its interpreter. Does nothing when it is
# there and complete.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

requirements="${1:-tests/python}/requirements.txt"
venv="${CARGO_TARGET_DIR:-$PWD/target}/venv${1:+-$(basename "$1")}"
stamp="$venv/requirements.txt"
# Several tests may ask at once: one makes it, the others wait.
mkdir -p "$(dirname "$venv")"
exec 9>"$venv.lock"
flock 9
if ! cmp -s "$requirements" "$stamp"; then
  rm -rf "$venv"
  python3 -m venv "$venv" >&2
  "$venv/bin/python" -m pip install --quiet --requirement "$requirements" >&2
  cp "$requirements" "$stamp"
fi
echo "$venv/bin/python"
