#!/usr/bin/env bash
# Checkpoints at URLs, with real servers over HTTP on this machine's loopback: S3 by moto (also in the place of Google Cloud Storage,
# whose XML API is the same), Azure by azurite, and a web server with ranges. Then the same through a server in between that fails:
# with bad statuses, with answers that end too early or too late, with connections that are reset, with silence; and with servers that
# refuse, whose files change, or that are not there.
#
#   scripts/check_remote.sh [TOOLS]      TOOLS is what scripts/fetch_remote.sh prints; without it, it is fetched
set -euo pipefail
cd "$(dirname "$0")/.."

tools=${1:-$(scripts/fetch_remote.sh)}
cargo build --quiet -p reshard-cli --features remote
reshard=$(realpath "${CARGO_TARGET_DIR:-target}/debug/reshard")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Nothing of this machine has a say: neither its proxies nor its credentials.
env -i PATH="$PATH" HOME="$work" TMPDIR="${TMPDIR:-/tmp}" timeout 600 \
    "$tools/python/bin/python" scripts/check_remote.py "$reshard" "$work" "$tools/node_modules/.bin/azurite-blob"
