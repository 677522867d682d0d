#!/usr/bin/env bash
# Tests checkpoints at URLs, with real servers over HTTP on this machine's loopback: S3 by moto (also for Google Cloud
# Storage, whose XML API is the same), Azure by azurite, and a web server with ranges. Then the same through a proxy that
# fails: with error statuses, with answers that end too early or too late, with connections that are reset, with silence;
# and with servers that reject requests, whose files change, or that do not exist.
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
# Use a copy: a later build without the feature would overwrite the program.
reshard=$work/reshard
cp "${CARGO_TARGET_DIR:-target}/${profile/dev/debug}/reshard" "$reshard"
# Clear the environment: this machine's proxies and credentials must have no effect.
env -i PATH="$PATH" HOME="$work" TMPDIR="${TMPDIR:-/tmp}" timeout 600 \
    "$tools/python/bin/python" scripts/check_remote.py "$reshard" "$work" "$tools/node_modules/.bin/azurite-blob"
