//! Compute rates: operations per second by element type, and memory bandwidth.

use reshard_kernels::DType;
use reshard_planner::Topology;

/// The compute rates of one rank.
///
/// ```text
/// time of an op = max(operations / rate of its element type, bytes read and written / memory bandwidth)
/// ```
///
/// ```
/// use reshard_kernels::DType;
/// use reshard_program::ComputeRates;
/// // 2 x 4096^3 operations in bf16.
/// let us = ComputeRates::h100().time_us(DType::BF16, 2.0 * 4096f64.powi(3), 3 * 2 * 4096 * 4096);
/// assert_eq!(us.round(), 139.0);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ComputeRates {
    /// Operations per microsecond, for elements of at most 8 bits, of 16, of 32 and of more.
    pub ops_per_us: [f64; 4],
    /// Bytes per microsecond that are read and written.
    pub memory_per_us: f64,
}

impl ComputeRates {
    /// Returns uniform rates: 100 operations and one byte per picosecond, 100 TFLOP/s and 1 TB/s.
    pub fn uniform() -> ComputeRates {
        ComputeRates { ops_per_us: [1e8; 4], memory_per_us: 1e6 }
    }

    /// Returns the data-sheet rates of an H100 SXM.
    ///
    /// They are dense: 1,979 TFLOP/s in 8 bits, 989 in 16, 67 in 32 and in 64; 3.35 TB/s.
    pub fn h100() -> ComputeRates {
        ComputeRates { ops_per_us: [1.979e9, 9.89e8, 6.7e7, 6.7e7], memory_per_us: 3.35e6 }
    }

    /// Returns the rates of a network: those of an H100 on networks of H100s, uniform ones otherwise.
    pub fn for_topology(topology: &Topology) -> ComputeRates {
        if *topology == Topology::h100() { ComputeRates::h100() } else { ComputeRates::uniform() }
    }

    /// Returns the time of an op on elements of a type with this memory traffic, in microseconds.
    #[doc(hidden)]
    pub fn time_us(&self, dtype: DType, operations: f64, bytes: u64) -> f64 {
        let class = match dtype.bits() {
            0..=8 => 0,
            9..=16 => 1,
            17..=32 => 2,
            _ => 3,
        };
        (operations / self.ops_per_us[class]).max(bytes as f64 / self.memory_per_us)
    }
}
