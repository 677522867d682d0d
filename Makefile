# What CI runs, one target a stage, and the longer runs that it does not.
.PHONY: all help ci release-check candle-check dcp python torch torch-sweep torch-versions torch-upstream fmt one-algebra figures plain-words dependencies clippy doc package test recipes candle kept exhaustive unsafe-list minilm bench bench-check plan-bench fuzz attack slow instructions cuda gpu gpu-build pictures mpi mpi-bench large-mpi soak large jax kills large-files remote c

all: fmt unsafe-list one-algebra plain-words clippy doc test

help:
	@echo "make              format, list of unsafe code, clippy, docs, tests"
	@echo "make ci           all that CI runs, from packages to the real checkpoint"
	@echo "make minilm       the real checkpoint alone (fetches 90 MB once)"
	@echo "make dcp          distributed checkpoints to and from a real PyTorch (RESHARD_TORCH: a Python that has it)"
	@echo "make remote       checkpoints at URLs, by real servers of S3, Azure and HTTP on this machine, and with failures (pip, npm)"
	@echo "make python       the Python package: the wheel, and all its tests in an environment that has only that (fetches 150 MB once)"
	@echo "make torch        the Python package within a real PyTorch: DTensor on 4 and 8 ranks over gloo (fetches 570 MB once)"
	@echo "make torch-sweep  the same with all pairs of the sweeps, of which CI takes an eighth"
	@echo "make torch-versions  what works with each supported PyTorch, compared with docs/torch.md (fetches 550 MB once for each of three)"
	@echo "make torch-upstream  PyTorch's own tests under planned(): RESHARD_TORCH_TESTS is test/distributed/tensor of a checkout, FILES some of it"
	@echo "make jax          reshard.jax on virtual devices: all pairs of two meshes at the bound, audits, docs/jax.md (fetches 500 MB once)"
	@echo "make c            the library for C: the header, every function called badly, examples between processes, under sanitizers"
	@echo "make recipes      the diffs of docs/recipes applied to a copy, and their tests run there"
	@echo "make candle       a framework's tensors under schedules, from a package outside of the workspace, on the real checkpoint"
	@echo "make release-check  what CI does not run for every change: packages built, recipes and a framework tried, all sweeps"
	@echo "make kept         200,000 plans and 100,000 shardings against the hashes kept of them (RESHARD_EXHAUSTIVE=0..7 an eighth)"
	@echo "make dependencies licences and duplicates of all dependencies, and known vulnerabilities where their data can be had"
	@echo "make bench        all benchmarks; the tables are in docs/reference/benchmarks"
	@echo "make bench-check  fails where a promised ratio is missed (RESHARD_WRITE=1: writes benches/results)"
	@echo "make plan-bench   plans and those of others by the clock, over links of 200 Mbit/s between network namespaces (root; 15 minutes)"
	@echo "make figures      the table of docs/reference/benchmarks from benches/results"
	@echo "make cuda         the CUDA kernels compiled for sm_90 and checked, without a GPU (fetches 90 MB once)"
	@echo "make mpi          the MPI engine: contract, faults, reshard run under mpirun (needs MPI and libclang)"
	@echo "make mpi-bench    the MPI engine against the bare MPI calls, 64 MiB over 4 ranks"
	@echo "make large-mpi    a tensor of more than 2^31 bytes over MPI (8 GiB of memory)"
	@echo "make gpu          all that needs a GPU; where there is no Rust, after a make gpu-build elsewhere"
	@echo "make pictures     pages of reshard report and the committed pictures in a real headless Chromium (fetches it and its driver once)"
	@echo "make exhaustive   all laws over their whole spaces, and all kept answers (RESHARD_EXHAUSTIVE=0..7 an eighth)"
	@echo "make soak         random redistributions on every engine of one process: SOAK_TENSORS (550,000, ten minutes of two busy cores) from SOAK_SEED (random, printed)"
	@echo "make kills        200 runs killed at random moments, and gone on with (RESHARD_KILLS another number)"
	@echo "make large-files  a tensor of 8 GiB to 1,024 rank files in 512 MiB of address space (16 GiB of disk), and the peak"
	@echo "make large        tensors and messages of more than 2^31 bytes (7 GiB)"
	@echo "make fuzz         arbitrary texts for every parser, FUZZ_SECONDS in all (a minute; nightly, cargo-fuzz); make attack has mutants of the same examples"
	@echo "make attack       ATTACK_REQUESTS (12,000, a minute) made and mutated requests for every subcommand and file, and mutants for every parser, from ATTACK_SEED (random, printed)"
	@echo "make slow         a guided search for plans, propagations and checks that take over a second: SLOW_SECONDS (600) from SLOW_SEED (1)"
	@echo "make instructions instruction counts of layouts, shardings, plans, propagation and schedules against the kept ones (valgrind)"

ci:
	.ci/run

fmt:
	cargo fmt --all --check

unsafe-list:
	scripts/check_unsafe.sh

one-algebra:
	scripts/check_one_algebra.sh

figures:
	scripts/figures.py

plain-words:
	scripts/plain_words.py

dependencies:
	scripts/check_dependencies.sh

# Always the whole workspace: a build of some crates unifies features differently, and compiles most of them again. `cuda` and
# `nccl`, which need nothing to build, are features of reshard-benches' dependencies, and so on in all of these.
MPI = reshard/mpi,reshard-mpi/mpi,reshard-checkpoint/mpi,reshard-cli/mpi,reshard-benches/mpi
EVERYTHING = --workspace --features reshard-python/extension$(if $(shell command -v mpicc),$(comma)$(MPI))
comma = ,

# The one test that has syn for itself: without it cargo builds what macros need, and all that stands on them, once more and in another way.
SAME_BUILD = --test rust_api

clippy:
	cargo clippy $(EVERYTHING) --all-targets -- -D warnings

doc:
	RUSTDOCFLAGS="-D warnings" cargo doc $(EVERYTHING) --no-deps

test:
	cargo test --workspace --no-fail-fast

dcp:
	scripts/check_dcp.sh

remote:
	scripts/check_remote.sh

python:
	scripts/check_python.sh

torch:
	scripts/check_torch.sh

torch-sweep: export RESHARD_TORCH_SWEEP = all
torch-sweep:
	scripts/check_torch.sh

torch-versions:
	scripts/check_torch_versions.sh

torch-upstream:
	scripts/check_torch_upstream.sh $(FILES)

jax: export RESHARD_JAX_SWEEP ?= all
jax:
	scripts/check_jax.sh
c:
	scripts/check_c.sh

recipes:
	scripts/check_recipes.sh

# Tests are optimised as a release: they compute with 90 MB of weights. RESHARD_MINILM may be given; it is fetched if not.
CANDLE = --release --locked --manifest-path examples/candle/Cargo.toml
candle candle-check: export CARGO_TARGET_DIR ?= $(CURDIR)/target
candle:
	cargo fmt --manifest-path examples/candle/Cargo.toml --check
	cargo clippy $(CANDLE) --all-targets -- -D warnings
	RESHARD_MINILM="$${RESHARD_MINILM:-$$(scripts/fetch_minilm.sh)}" cargo test $(CANDLE) -- --nocapture

candle-check:
	cargo check $(CANDLE) --all-targets

kept: export RESHARD_EXHAUSTIVE ?= all
kept:
	cargo test --release -p reshard-planner --test kept -- --nocapture

exhaustive: export RESHARD_EXHAUSTIVE ?= all
exhaustive:
	cargo test --release --workspace --lib --tests -- --nocapture

package:
	scripts/check_packages.sh

# What CI does not run for every change, before a release.
release-check: candle
	scripts/check_packages.sh --full
	scripts/check_recipes.sh --all
	RESHARD_EXHAUSTIVE=all $(MAKE) exhaustive

minilm:
	RESHARD_MINILM="$${RESHARD_MINILM:-$$(scripts/fetch_minilm.sh)}" cargo test --workspace --test minilm $(SAME_BUILD) -- --nocapture

bench:
	cargo bench -p reshard-benches

bench-check:
	cargo run --release --package reshard-benches --bin bench_check
	scripts/check_run_speed.sh

plan-bench:
	scripts/plan_bench.sh

SOAK_TENSORS ?= 550000
SOAK_SEED ?= random
soak:
	RESHARD_SOAK_TENSORS=$(SOAK_TENSORS) RESHARD_SOAK_SEED=$(SOAK_SEED) cargo test --release -p reshard-collectives --test laws -- --nocapture soak

kills: export RESHARD_KILLS ?= 200
kills:
	cargo test --release -p reshard-cli --test cli -- --nocapture a_killed_run_goes_on

large-files:
	scripts/check_files_memory.sh

large:
	cargo test --release -p reshard-collectives --test laws -- --ignored --nocapture --test-threads=1 large

ATTACK_REQUESTS ?= 12000
ATTACK_SEED ?= random
attack:
	RESHARD_ATTACK_REQUESTS=$(ATTACK_REQUESTS) RESHARD_ATTACK_SEED=$(ATTACK_SEED) cargo test --workspace --test attack $(SAME_BUILD) -- --nocapture

SLOW_SECONDS ?= 600
SLOW_SEED ?= 1
slow:
	cargo build --release --bin reshard
	scripts/slow_questions.py target/release/reshard --seconds $(SLOW_SECONDS) --seed $(SLOW_SEED)

FUZZ_SECONDS ?= 60
fuzz:
	fuzz/run $(FUZZ_SECONDS)

instructions:
	benches/instructions.sh layout --check
	benches/instructions.sh sharding --check
	benches/instructions.sh planner --check
	benches/instructions.sh propagation --check
	benches/instructions.sh schedule --check
	benches/instructions.sh program --check

# What compiles kernels. All else of CUDA and NCCL runs with `make test`.
cuda:
	eval "$$(scripts/fetch_nvrtc.sh)" && RESHARD_NEED_NVRTC=1 cargo test --workspace --test nvrtc --test on_device $(SAME_BUILD)

MPIRUN ?= mpirun --oversubscribe --allow-run-as-root --bind-to none
mpi:
	RESHARD_MPIRUN="$(MPIRUN)" cargo test --workspace --features $(MPI) --test jobs --test mpi_run $(SAME_BUILD) -- --nocapture --test-threads 1

mpi-bench:
	cargo build --release -p reshard-benches --features mpi --bin mpi_against_bare
	$(MPIRUN) -n 4 $${CARGO_TARGET_DIR:-target}/release/mpi_against_bare

large-mpi:
	RESHARD_MPIRUN="$(MPIRUN)" cargo test -p reshard-mpi --features mpi --test jobs -- --ignored --nocapture

gpu-build:
	scripts/gpu.sh build

pictures:
	scripts/check_pictures.sh

gpu:
	if command -v cargo >/dev/null; then scripts/gpu.sh build; fi
	scripts/gpu.sh run
