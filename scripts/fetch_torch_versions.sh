#!/usr/bin/env bash
# Fetches the supported versions of PyTorch other than the default one of fetch_torch.sh, one at a time. Prints a line for each:
# the version and its folder, or `-` if it could not be fetched within six minutes.
set -euo pipefail
cd "$(dirname "$0")/.."

default=$(sed -n 's/^default=//p' scripts/fetch_torch.sh)
for version in $(sed -n 's/.*: Supported("\([0-9.]*\)".*/\1/p' python/reshard/torch/version.py); do
    [ "$version" != "$default" ] || continue
    if folder=$(timeout 360 scripts/fetch_torch.sh --version "$version"); then
        echo "$version $folder"
    else
        echo "fetch_torch_versions: PyTorch $version could not be fetched" >&2
        echo "$version -"
    fi
done
