#!/usr/bin/env bash
# Lists the licences and the duplicates of all dependencies and checks them against deny.toml. Looks for known
# vulnerabilities by cargo-deny, if the database of advisories is available. Exit status 3: all checks pass, except that
# the advisories could not be checked.
set -euo pipefail
cd "$(dirname "$0")/.."

metadata=$(mktemp)
trap 'rm -f "$metadata"' EXIT
cargo metadata --locked --format-version 1 >"$metadata"
python3 - "$metadata" <<'PYTHON'
"""Lists licences and duplicates; fails on a licence that deny.toml does not allow."""
import collections, json, re, sys, tomllib

with open("deny.toml", "rb") as file:
    allowed = set(tomllib.load(file)["licenses"]["allow"])
with open(sys.argv[1], encoding="utf-8") as file:
    packages = [p for p in json.load(file)["packages"] if p["source"]]


def permits(expression):
    """Whether an SPDX expression can be met by allowed licences alone: OR of ANDs, with parentheses."""
    tokens = re.findall(r"[()]|[^\s()]+", expression.replace("/", " OR "))

    def one():
        token = tokens.pop(0)
        if token == "(":
            value = either()
            tokens.pop(0)
            return value
        name = token
        if tokens[:1] == ["WITH"]:
            name = " ".join([token, tokens.pop(0), tokens.pop(0)])
        return name in allowed

    def both():
        value = one()
        while tokens[:1] == ["AND"]:
            tokens.pop(0)
            value = one() and value
        return value

    def either():
        value = both()
        while tokens[:1] == ["OR"]:
            tokens.pop(0)
            value = both() or value
        return value

    return either()


for expression, holds in {
    "MIT": True,
    "GPL-3.0": False,
    "GPL-3.0 OR MIT": True,
    "MIT AND GPL-3.0": False,
    "Unlicense/MIT": True,
    "(MIT OR GPL-3.0) AND Unicode-3.0": True,
    "(MIT OR Apache-2.0) AND GPL-3.0": False,
    "GPL-3.0 OR MIT AND GPL-3.0": False,
    "Apache-2.0 WITH LLVM-exception": False,
}.items():
    assert permits(expression) == holds, expression

print(f"{len(packages)} crates that others wrote, by licence:")
by_licence = collections.Counter(p["license"] or "none named" for p in packages)
for licence, count in by_licence.most_common():
    print(f"{count:6}  {licence}")

versions = collections.defaultdict(set)
for package in packages:
    versions[package["name"]].add(package["version"])
twice = {name: sorted(found) for name, found in sorted(versions.items()) if len(found) > 1}
print(f"{len(twice)} of them in more than one version:")
for name, found in twice.items():
    print(f"        {name} {', '.join(found)}")

refused = [p for p in packages if not p["license"] or not permits(p["license"])]
for package in refused:
    print(f"{package['name']} {package['version']} is under {package['license']}, which deny.toml does not allow")
sys.exit(1 if refused else 0)
PYTHON

# The database is a repository; do not wait for it if it cannot be reached.
database=https://github.com/rustsec/advisory-db
if ! timeout 20 git ls-remote --quiet "$database" HEAD >/dev/null 2>&1; then
    echo "known vulnerabilities were not looked at: $database cannot be reached" >&2
    exit 3
fi
if ! cargo deny --version >/dev/null 2>&1; then
    timeout 1200 cargo install --quiet --locked cargo-deny || {
        echo "known vulnerabilities were not looked at: cargo-deny could not be installed" >&2
        exit 3
    }
fi
cargo deny check
