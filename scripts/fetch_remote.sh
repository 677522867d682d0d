#!/usr/bin/env bash
# Fetches the servers for tests of checkpoints at URLs (330 MB): moto for S3, azurite for Azure, and their clients. They are
# stored outside of the checkout, and are fetched once. Prints their folder. Needs pip, and npm for azurite.
#
#   scripts/fetch_remote.sh [FOLDER]        default: ${XDG_CACHE_HOME:-$HOME/.cache}/reshard
set -euo pipefail

# Only the dependencies of moto's S3.
packages=('moto==5.2.5' 'boto3==1.44.8' 'azure-storage-blob==12.31.1' flask flask-cors PyYAML py-partiql-parser)
azurite=azurite@3.35.0
folder=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/reshard}/remote

python=$(command -v python3 || command -v python) || { echo "fetch_remote: there is no python" >&2; exit 1; }
command -v npm >/dev/null || "$(dirname "$0")/apt_install.sh" nodejs npm >&2
wanted="${packages[*]} $azurite"
if [ "$(cat "$folder/packages" 2>/dev/null)" != "$wanted" ] || ! "$folder/python/bin/python" -c '' 2>/dev/null; then
    rm -rf "$folder"
    mkdir -p "$folder"
    "$python" -m venv "$folder/python" >&2
    "$folder/python/bin/pip" install --quiet --disable-pip-version-check "${packages[@]}" >&2 </dev/null
    echo '{"private":true}' >"$folder/package.json"
    (cd "$folder" && npm install --silent --no-audit --no-fund "$azurite" >&2) ||
        { echo "fetch_remote: npm could not fetch azurite" >&2; exit 1; }
    echo "$wanted" >"$folder/packages"
fi
echo "$folder"
