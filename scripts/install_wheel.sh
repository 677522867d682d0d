#!/usr/bin/env bash
# Makes an environment with the wheel and the packages of the tools, but without the package of the checkout.
#
#   scripts/install_wheel.sh WHEEL TOOLS FOLDER
set -euo pipefail

wheel=$1 tools=$2 folder=$3
site='import sysconfig; print(sysconfig.get_path("purelib"))'

"$tools/bin/python" -m venv "$folder"
"$folder/bin/pip" install --quiet --no-index --no-deps --disable-pip-version-check "$wheel"
"$tools/bin/python" -c "$site" >"$("$folder/bin/python" -c "$site")/tools.pth"
cd "$folder"
"$folder/bin/python" -P -c 'import reshard, sys
assert reshard.__file__.startswith(sys.prefix), reshard.__file__
loaded = {"numpy", "torch", "jax", "ml_dtypes"} & set(sys.modules)
assert not loaded, loaded'
