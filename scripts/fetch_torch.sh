#!/usr/bin/env bash
# Fetches PyTorch for tests on CPUs (570 MB, 1.5 GB on disk): a virtual environment outside of the checkout, made once. Prints its
# folder.
#
#   scripts/fetch_torch.sh [--version VERSION] [FOLDER]        default: ${XDG_CACHE_HOME:-$HOME/.cache}/reshard
#
# The default version is in FOLDER/torch, another one in FOLDER/torch-VERSION.
#
# The registry's only wheel for this platform is linked with 2 GB of CUDA libraries, of which a machine without a GPU calls
# only the runtime. So the runtime is fetched, and the others are replaced by stand-ins that are built here: libraries with
# the same names, whose functions end the process with a message.
set -euo pipefail

default=2.15.0
version=$default
if [ "${1-}" = --version ]; then
    version=${2:?fetch_torch: --version needs a version, such as 2.14.1}
    shift 2
fi
# The runtime of the CUDA release that the registry's wheel is linked with: `cuda-toolkit` in the wheel's requirements.
case $version in
2.9.* | 2.10.*) runtime='nvidia-cuda-runtime-cu12==12.8.*' ;;
2.11.* | 2.12.* | 2.13.* | 2.14.*) runtime='nvidia-cuda-runtime==13.0.*' ;;
*) runtime='nvidia-cuda-runtime==13.2.*' ;;
esac
torch=("torch==$version" "$runtime")
packages=(
    filelock 'typing-extensions>=4.13' 'setuptools>=77' 'sympy>=1.13.3' networkx jinja2 fsspec 'numpy>=2.1' 'ml_dtypes>=0.5' safetensors
    'maturin>=1.9.4,<2' 'pytest>=8' 'hypothesis>=6.100' expecttest
)
# Installed without dependencies, and by themselves if this list changes: PyTorch is not fetched again for them.
alone=(spmd_types==0.3.1)
folder=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/reshard}/torch
[ "$version" = "$default" ] || folder+=-$version

# stand_ins FOLDER: builds the missing libraries that torch's own are linked with, with the symbols that those need.
stand_ins() {
    "$1/bin/python" - <<'PYTHON'
import collections, pathlib, subprocess, sysconfig

site = pathlib.Path(sysconfig.get_path("purelib"))
ours = site / "torch/lib"
# The folder of the runtime, which is in the search path of torch's libraries.
made = next(iter(site.glob("nvidia/*/lib/libcudart.so*"))).parent
here = {path.name for path in [*ours.glob("*.so*"), *made.glob("*.so*")]}
prefixes = {"nccl": "libnccl.so", "cusparseLt": "libcusparseLt.so", "cuFile": "libcufile.so", "nvshmem": "libnvshmem_host.so"}
needed, wanted = set(), collections.defaultdict(set)
for library in ours.glob("*.so*"):
    dynamic = subprocess.run(["readelf", "-d", library], capture_output=True, text=True, check=True).stdout
    needed |= {line.split("[")[1].rstrip("]") for line in dynamic.splitlines() if "(NEEDED)" in line}
    symbols = subprocess.run(["nm", "-D", "--undefined-only", library], capture_output=True, text=True, check=True).stdout
    for line in symbols.splitlines():
        name, _, version = line.split()[-1].partition("@")
        version = version.lstrip("@")
        if version.startswith("lib"):
            wanted[version].add((name, version))
        for prefix, file in prefixes.items():
            if name.startswith(prefix):
                wanted[file].add((name, version))
for name in sorted(needed - here):
    if not name.startswith(("libcu", "libnv", "libnccl")):
        continue
    symbols = {pair for file, pairs in wanted.items() if name.startswith(file) for pair in pairs}
    source = "#include <stdio.h>\n#include <stdlib.h>\n"
    source += "static void none(const char *f) { fprintf(stderr, \"%s: there is no CUDA here\\n\", f); abort(); }\n"
    source += "".join(f'void {symbol}(void) {{ none("{symbol}"); }}\n' for symbol, _ in sorted(symbols))
    versions = sorted({version for _, version in symbols if version})
    script = made / f"{name}.versions"
    script.write_text("".join(f"{v} {{ {'global: *;' if v == versions[0] else ''} }};\n" for v in versions) or "{ global: *; };\n")
    command = ["cc", "-shared", "-fPIC", "-O1", "-w", "-x", "c", "-", f"-Wl,-soname,{name}", f"-Wl,--version-script={script}", "-o", made / name]
    subprocess.run(command, input=source, text=True, check=True)
    script.unlink()
PYTHON
}

python=$(command -v python3.11 || command -v python3) || { echo "fetch_torch: there is no python" >&2; exit 1; }
wanted="${torch[*]} ${packages[*]}"
if [ "$(cat "$folder/packages" 2>/dev/null)" != "$wanted" ] || ! "$folder/bin/python" -c 'import torch' 2>/dev/null; then
    rm -rf "$folder"
    "$python" -m venv "$folder" >&2
    # No cache: it would hold 550 MB more of every version.
    "$folder/bin/pip" install --quiet --disable-pip-version-check --no-cache-dir --no-deps "${torch[@]}" >&2 </dev/null
    "$folder/bin/pip" install --quiet --disable-pip-version-check "${packages[@]}" >&2 </dev/null
    stand_ins "$folder" >&2
    "$folder/bin/python" -c 'import torch.distributed as d; assert d.is_gloo_available()' >&2
    echo "$wanted" >"$folder/packages"
fi
if [ "$(cat "$folder/alone" 2>/dev/null)" != "${alone[*]}" ]; then
    "$folder/bin/pip" install --quiet --disable-pip-version-check --no-deps "${alone[@]}" >&2 </dev/null
    echo "${alone[*]}" >"$folder/alone"
fi
echo "$folder"
