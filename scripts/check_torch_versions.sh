#!/usr/bin/env bash
# Tests the package with the supported versions of PyTorch other than the default one: each has the row of docs/torch.md.
#
#   scripts/check_torch_versions.sh [FOUND]     FOUND: a file with what scripts/fetch_torch_versions.sh prints, which runs if not given
set -euo pipefail
cd "$(dirname "$0")/.."

root=$PWD
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
found=${1:-$work/found}
[ -n "${1-}" ] || scripts/fetch_torch_versions.sh >"$found"
wheel=$(scripts/build_wheel.sh "$(scripts/fetch_torch.sh)/bin/maturin" "$work/wheels")

while read -r version folder; do
    if [ "$folder" = - ]; then
        # A run by hand has asked for all of them; .ci/run lists what it skipped.
        [ -n "${1-}" ] || exit 1
        continue
    fi
    printf -- '-- PyTorch %s (%s s)\n' "$version" "$SECONDS"
    scripts/install_wheel.sh "$wheel" "$folder" "$work/$version"
    (cd "$work" && timeout 300 "$work/$version/bin/python" -P "$root/python/tests/with_torch/torch_versions.py" --compare </dev/null)
done <"$found"
printf -- '-- done (%s s)\n' "$SECONDS"
