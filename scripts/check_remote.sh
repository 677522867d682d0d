#!/usr/bin/env bash
# Checkpoints at URLs, with real servers over HTTP on this machine's loopback: S3 by moto (also in the place of Google Cloud Storage,
# whose XML API is the same), Azure by azurite, and a web server with ranges. Then the same through a server in between that fails:
# with bad statuses, with answers that end too early or too late, with connections that are reset, with silence; and with servers that
# refuse, whose files change, or that are not there.
#
#   scripts/check_remote.sh [TOOLS [PROFILE]]      TOOLS is what scripts/fetch_remote.sh prints; without it, it is fetched
#                                                  PROFILE is `dev` or `release` [default: dev]
set -euo pipefail
cd "$(dirname "$0")/.."

tools=${1:-$(scripts/fetch_remote.sh)}
profile=${2:-dev}
cargo build --quiet --profile "$profile" -p reshard-cli --features remote
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# One of its own: a build of the same without the feature would take its place.
reshard=$work/reshard
cp "${CARGO_TARGET_DIR:-target}/${profile/dev/debug}/reshard" "$reshard"
# Nothing of this machine has a say: neither its proxies nor its credentials.
env -i PATH="$PATH" HOME="$work" TMPDIR="${TMPDIR:-/tmp}" timeout 600 \
    "$tools/python/bin/python" scripts/check_remote.py "$reshard" "$work" "$tools/node_modules/.bin/azurite-blob"
