#!/usr/bin/env bash
# Whether what would be published compiles: every crate is packaged, and all packages together are checked as a workspace of their own,
# in which each takes the others as it would from the registry.
#
# `cargo package` builds them one by one by itself, which takes five times as long.
set -euo pipefail
cd "$(dirname "$0")/.."

# What an earlier packaging left.
rm -rf target/package
cargo package --workspace --allow-dirty --no-verify

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
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
