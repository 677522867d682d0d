#!/usr/bin/env bash
# Tests the Python package as its users get it: builds the wheel, checks its contents, installs it into an empty
# environment, and runs all tests there.
#
#   scripts/check_python.sh [TOOLS]     TOOLS: the environment of scripts/fetch_python.sh, which is fetched if not given
set -euo pipefail
cd "$(dirname "$0")/.."

root=$PWD
tools=${1:-$(scripts/fetch_python.sh)}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

step() {
    printf -- '-- %s (%s s)\n' "$1" "$SECONDS"
}

step "the wheel"
wheel=$(scripts/build_wheel.sh "$tools/bin/maturin" "$work/wheels")

step "what is in the wheel"
"$tools/bin/python" - "$wheel" "$root" "${CARGO_HOME:-$HOME/.cargo}" "$HOME" "${CARGO_TARGET_DIR:-$root/target}" <<'PYTHON'
"""Fails if the wheel is bound to one version of Python, needs anything, or holds a path of the machine that built it."""
import pathlib, sys, zipfile

wheel, *paths = sys.argv[1:]
assert "-cp311-abi3-" in wheel, wheel
with zipfile.ZipFile(wheel) as files:
    for name in files.namelist():
        content = files.read(name)
        for path in paths:
            assert path.encode() not in content, f"{name} holds {path}"
        if name.endswith("METADATA"):
            needs = [line for line in content.decode().splitlines() if line.startswith("Requires-Dist") and "extra" not in line]
            assert not needs, needs
    names = files.namelist()
    assert any(name.endswith("_reshard.pyi") for name in names) and "reshard/py.typed" in names, names
    assert not any("tests/" in name or "examples/" in name for name in names), names
print(f"{pathlib.Path(wheel).name}: {pathlib.Path(wheel).stat().st_size} bytes, {len(names)} files")
PYTHON

step "an empty environment"
python3 -m venv "$work/empty"
"$work/empty/bin/pip" install --quiet --no-index --no-deps --disable-pip-version-check "$wheel"
cd "$work"
"$work/empty/bin/python" -I -X importtime -c 'import reshard, sys
loaded = {"numpy", "torch", "jax", "ml_dtypes"} & set(sys.modules)
assert not loaded, loaded
print(reshard.__version__, reshard.Sharding("dp=2,tp=4", (64, 32), "S(0),R").local_shape(3))' 2>imports
tail -1 imports
"$work/empty/bin/python" -I -m reshard layout 'coalesce((2,3):(1,2))'
"$work/empty/bin/reshard" shards --mesh dp=2,tp=2 --shape 4,4 --placements 'S(0),S(1)' >/dev/null

step "tests in an environment that has the wheel and NumPy"
"$root/scripts/install_wheel.sh" "$wheel" "$tools" "$work/tested"
"$work/tested/bin/python" -P -m pytest "$root/python/tests" -p no:cacheprovider --durations=5

step "types"
types=("$work/tested/bin/python" -P -m mypy --strict --config-file "$root/python/pyproject.toml" --cache-dir "$work/mypy")
"${types[@]}" --package reshard
"${types[@]}" "$root"/python/examples/*.py
"$work/tested/bin/python" -P -m mypy.stubtest reshard._reshard

step "the notebook, without a head"
for notebook in "$root"/python/examples/*.ipynb; do
    "$work/tested/bin/python" -P "$root/python/tests/run_notebook.py" "$notebook"
done
step "done"
