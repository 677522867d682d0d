//! Compute rates: operations per second by element type, and memory bandwidth.

use std::borrow::Cow;

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

    /// Returns the data-sheet rates of an H100 SXM, for dense operands: those of [`Topology::h100`].
    pub fn h100() -> ComputeRates {
        ComputeRates::for_topology(&Topology::h100())
    }

    /// Returns the rates that the profile of a network has, or else uniform ones.
    ///
    /// Nominal nodes of H100 have those of an H100.
    pub fn for_topology(topology: &Topology) -> ComputeRates {
        with_rates(topology).compute().map_or_else(ComputeRates::uniform, |compute| ComputeRates {
            ops_per_us: compute.tflops.map(|rate| rate * 1e6),
            memory_per_us: compute.memory_gbytes_per_s * 1e3,
        })
    }

    /// Returns the source of the rates of a network, such as `data sheet of H100 SXM, dense`.
    pub fn origin(topology: &Topology) -> String {
        let nominal = || "nominal rates, 100 TFLOP/s and 1 TB/s".to_owned();
        with_rates(topology).compute().map_or_else(nominal, |compute| compute.from.clone())
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

/// Returns the network that has the rates of a network: a measured one for its nominal form.
fn with_rates(topology: &Topology) -> Cow<'_, Topology> {
    if topology.compute().is_none() && *topology == Topology::h100_lines() {
        Cow::Owned(Topology::h100())
    } else {
        Cow::Borrowed(topology)
    }
}
