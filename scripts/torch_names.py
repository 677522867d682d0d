#!/usr/bin/env python3
"""Lists PyTorch's forward names from its wheel, without running any of it:

    pip download torch==2.15.0 --no-deps --only-binary=:all: --platform macosx_14_0_arm64 --python-version 3.12
    unzip -q torch-*.whl -d torch_wheel && pip install pyyaml
    scripts/torch_names.py torch_wheel > sharding/ops/tests/data/torch_names.txt

They are the ops that DTensor registers or calls pointwise, the core ops, those on lists and fused ones, and all that is
documented in torch, torch.nn.functional, torch.linalg, torch.special and torch.fft: no backward, and an in-place
variant by the name of its op.
"""

import glob
import re
import sys

import yaml

root = sys.argv[1] + "/"


def text(path):
    return open(root + path, encoding="utf-8").read()


tags = {}
for function in yaml.safe_load(text("torchgen/packaged/ATen/native/native_functions.yaml")):
    name = function["func"].split("(")[0].split(".")[0]
    of = function.get("tags") or []
    tags.setdefault(name, set()).update([of] if isinstance(of, str) else of)

names = {n for n, of in tags.items() if of & {"pointwise", "core"} or n.startswith(("_foreach", "_fused"))}
for path in glob.glob(root + "torch/distributed/tensor/_ops/*.py"):
    names.update(re.findall(r"\b(?:aten|prims)\.(\w+)", open(path, encoding="utf-8").read()))
names.update(re.findall(r"^add_docstr\(\s*torch\.(\w+),", text("torch/_torch_docs.py"), re.M))
names.update(re.findall(r'^    "(\w+)",', text("torch/functional.py").split("__all__")[1].split("]")[0], re.M))

DEFINED = r"^(?:def )?([a-z]\w*)(?:\(| = _add_docstr| = torch\._jit| = _wrap|: )"
for path, prefix in [
    ("torch/nn/functional.py", ""),
    ("torch/linalg/__init__.py", "linalg_"),
    ("torch/special/__init__.py", "special_"),
    ("torch/fft/__init__.py", "fft_"),
]:
    names.update(prefix + n for n in re.findall(DEFINED, text(path), re.M))

forward = {n[:-1] if n.endswith("_") and not n.endswith("__") else n for n in names if "backward" not in n}
print("\n".join(sorted(forward)))
