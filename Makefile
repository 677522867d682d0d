# What CI runs, one target a stage, and the longer runs that it does not.
.PHONY: all help ci fmt clippy doc package test unsafe-list minilm bench bench-check laws fuzz instructions cuda

all: fmt unsafe-list clippy doc test

help:
	@echo "make              format, list of unsafe code, clippy, docs, tests"
	@echo "make ci           all that CI runs, from packages to the real checkpoint"
	@echo "make minilm       the real checkpoint alone (fetches 90 MB once)"
	@echo "make bench        all benchmarks; the tables are in docs/benchmarks.md"
	@echo "make bench-check  fails where a promised ratio is missed"
	@echo "make cuda         the CUDA kernels compiled for sm_90 and checked, without a GPU (fetches 90 MB once)"
	@echo "make laws         the laws of layouts and plans over larger spaces (minutes)"
	@echo "make fuzz         arbitrary layout expressions for a minute (nightly, cargo-fuzz)"
	@echo "make instructions instruction counts of the layout algebra and the planner against the kept ones (valgrind)"

ci:
	.ci/run

fmt:
	cargo fmt --all --check

unsafe-list:
	scripts/check_unsafe.sh

clippy:
	cargo clippy --workspace --all-targets -- -D warnings
	cargo clippy -p reshard-cuda -p reshard-device --features reshard-device/cuda --all-targets -- -D warnings

doc:
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps

test:
	cargo test --workspace

package:
	cargo package --workspace --allow-dirty

minilm:
	RESHARD_MINILM="$$(scripts/fetch_minilm.sh)" cargo test --release --test minilm -- --nocapture

bench:
	cargo bench -p reshard-benches

bench-check:
	cargo run --release --package reshard-benches --bin bench_check
	scripts/check_run_speed.sh

laws:
	RESHARD_LAWS=full cargo test --release -p reshard-layout --test laws
	RESHARD_LAWS=full cargo test --release -p reshard-sharding --test planner_laws -- --nocapture

FUZZ_SECONDS ?= 60
fuzz:
	cd layout && cargo +nightly fuzz run expressions -- -max_total_time=$(FUZZ_SECONDS) -dict=fuzz/expressions.dict

instructions:
	benches/instructions.sh layout --check
	benches/instructions.sh planner --check

cuda:
	eval "$$(scripts/fetch_nvrtc.sh)" && RESHARD_NEED_NVRTC=1 cargo test -p reshard-cuda -p reshard-device --features reshard-device/cuda --test nvrtc --test on_device --test contract
