# What CI runs, and the longer runs that it does not. `make ci` is .ci/run.
.PHONY: all ci fmt clippy doc package test unsafe-list minilm bench bench-check

all: fmt clippy doc test unsafe-list

ci:
	.ci/run

fmt:
	cargo fmt --all --check

clippy:
	cargo clippy --workspace --all-targets -- -D warnings

doc:
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps

package:
	cargo package --workspace --exclude reshard-benches --allow-dirty --no-verify

test:
	cargo test --workspace

unsafe-list:
	scripts/check_unsafe.sh

# The real checkpoint: fetched once into a cache outside the tree.
minilm:
	RESHARD_MINILM="$$(scripts/fetch_minilm.sh)" cargo test --release --test minilm -- --nocapture

bench:
	cargo bench -p reshard-benches
