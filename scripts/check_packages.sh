#!/usr/bin/env bash
# Checks that the packages to publish are complete.
#
#     scripts/check_packages.sh           checks that each package has every file that its sources include, licence and README
#     scripts/check_packages.sh --full    also packages every crate, and checks all packages as one separate workspace, in
#                                         which each uses the others as it would from the registry
#
# `cargo package` alone would build them one at a time, which takes five times as long.
set -euo pipefail
cd "$(dirname "$0")/.."

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

cargo metadata --locked --no-deps --format-version 1 >"$tmp/metadata.json"
python3 - "$tmp/metadata.json" <<'PYTHON'
"""Fails where a package lacks a file that its sources include."""
import json, pathlib, re, subprocess, sys

with open(sys.argv[1], encoding="utf-8") as file:
    packages = [p for p in json.load(file)["packages"] if p["publish"] != []]
included = re.compile(r'\binclude(?:_str|_bytes)?!\(\s*"([^"]+)"')
missing, files_in_all = [], 0
for package in packages:
    root = pathlib.Path(package["manifest_path"]).parent
    command = ["cargo", "package", "--package", package["name"], "--list", "--allow-dirty"]
    files = set(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split("\n")) - {""}
    files_in_all += len(files)
    for name in sorted(files):
        if not name.endswith(".rs"):
            continue
        for said in included.findall((root / name).read_text(encoding="utf-8")):
            path = (root / name).parent / said
            inside = path.resolve()
            if not inside.is_relative_to(root.resolve()) or str(inside.relative_to(root.resolve())) not in files:
                missing.append(f"{package['name']}: {name} includes {said}, which is not in the package")
    if package["readme"] and not (root / package["readme"]).is_file():
        missing.append(f"{package['name']}: there is no {package['readme']}")
    for target in package["targets"]:
        source = str(pathlib.Path(target["src_path"]).relative_to(root))
        if source not in files and target["kind"] != ["test"] and target["kind"] != ["bench"]:
            missing.append(f"{package['name']}: {source} is not in the package")
print("\n".join(missing) or f"{len(packages)} packages have {files_in_all} files, and all that their sources include")
sys.exit(1 if missing else 0)
PYTHON

if [ "${1:-}" != --full ]; then exit; fi

# Remove the results of an earlier run.
rm -rf target/package
cargo package --workspace --allow-dirty --no-verify
{
    echo '[workspace]'
    echo 'resolver = "3"'
    echo 'members = ["*-[0-9]*"]'
    echo '[patch.crates-io]'
} >"$tmp/Cargo.toml"
for package in target/package/*.crate; do
    tar --extract --gzip --file "$package" --directory "$tmp"
    folder=$(basename "$package" .crate)
    echo "${folder%-[0-9]*} = { path = \"$folder\" }" >>"$tmp/Cargo.toml"
done
cp Cargo.lock "$tmp/Cargo.lock"
CARGO_TARGET_DIR=$PWD/target cargo check --manifest-path "$tmp/Cargo.toml" --workspace
