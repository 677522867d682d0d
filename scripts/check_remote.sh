#!/usr/bin/env bash
# Checkpoints at URLs, with real servers over HTTP on this machine's loopback: S3 by moto (also in the place of Google Cloud Storage,
# whose XML API is the same), Azure by azurite, and a web server with ranges. Then the same through a server in between that fails:
# with status 500, with answers that end too early, with connections that are reset; and with servers that refuse, change or are not there.
#
#   scripts/check_remote.sh [FOLDER]      FOLDER keeps the servers between calls [default: ~/.cache/reshard/remote]
#
# Needs pip, and npm for azurite. Exit status 3: they could not be had, and nothing was looked at.
set -euo pipefail
cd "$(dirname "$0")/.."

tools=${1:-$HOME/.cache/reshard/remote}
python=$tools/python/bin/python
if ! "$python" -c 'import moto, flask, boto3, azure.storage.blob' 2>/dev/null; then
    { python3 -m venv "$tools/python" && "$python" -m pip install --quiet 'moto[server]' boto3 azure-storage-blob; } || {
        echo "nothing was looked at: moto and azure-storage-blob could not be installed" >&2
        exit 3
    }
fi
if [[ ! -x $tools/node_modules/.bin/azurite-blob ]]; then
    npm install --silent --prefix "$tools" azurite || {
        echo "nothing was looked at: azurite could not be installed" >&2
        exit 3
    }
fi
cargo build --quiet -p reshard-cli --features remote
reshard=$(realpath "${CARGO_TARGET_DIR:-target}/debug/reshard")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$python" scripts/check_remote.py "$reshard" "$work" "$tools/node_modules/.bin/azurite-blob"
