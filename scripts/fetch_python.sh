#!/usr/bin/env bash
# Fetches the build and test dependencies of the Python package (150 MB): a virtual environment outside of the checkout,
# made once. Prints its folder.
#
#   scripts/fetch_python.sh [FOLDER]        default: ${XDG_CACHE_HOME:-$HOME/.cache}/reshard
set -euo pipefail

packages=(
    'maturin>=1.9.4,<2' 'mypy>=1.18' 'pytest>=8' 'hypothesis>=6.100'
    'numpy>=2.1' 'ml_dtypes>=0.5' 'nbclient>=0.10' 'ipykernel>=6.29'
)
folder=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/reshard}/python

python=$(command -v python3 || command -v python) || { echo "fetch_python: there is no python" >&2; exit 1; }
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
    echo "fetch_python: $("$python" --version) is older than the package supports, which is 3.11" >&2
    exit 1
}
if [ "$(cat "$folder/packages" 2>/dev/null)" != "${packages[*]}" ] || ! "$folder/bin/python" -c '' 2>/dev/null; then
    rm -rf "$folder"
    "$python" -m venv "$folder" >&2
    "$folder/bin/pip" install --quiet --disable-pip-version-check "${packages[@]}" >&2 </dev/null
    echo "${packages[*]}" >"$folder/packages"
fi
echo "$folder"
