//! Benchmarks of reshard, peers beside them (see `docs/benchmarks.md`).
