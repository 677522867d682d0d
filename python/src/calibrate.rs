//! Measuring a network: the samples that a process group of a framework takes.

use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use reshard_calibrate::{Options, Report, SampleOptions, Sampled, Sampler, Unsettled, calibrate};
use reshard_planner::Topology;
use serde::Serialize;

use crate::dtype::DTypeArgument;
use crate::failure::Answer;
use crate::json;
use crate::numbers::number;
use crate::texts::text;
use crate::topology::PyTopology;

/// The samples to take: all ranks record the same times, and so choose the same samples.
#[pyclass(frozen, name = "_Sampler", module = "reshard._reshard")]
#[derive(Debug)]
struct PySampler {
    options: SampleOptions,
    sampler: Mutex<Sampler>,
}

impl PySampler {
    fn lock(&self) -> MutexGuard<'_, Sampler> {
        self.sampler.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A report, with the points whose times are uncertain or unknown.
#[derive(Serialize)]
struct Reported<'a> {
    #[serde(flatten)]
    report: &'a Report,
    unsettled: &'a [Unsettled],
}

#[pymethods]
impl PySampler {
    /// `seconds` limits the time of all samples.
    #[new]
    fn new(
        #[pyo3(from_py_with = number)] world: u32,
        #[pyo3(from_py_with = number)] node_ranks: u32,
        only_whole: bool,
        #[pyo3(from_py_with = number)] most_bytes: u64,
        dtype: DTypeArgument,
        #[pyo3(from_py_with = number)] seconds: f64,
    ) -> Answer<PySampler> {
        let total_us = seconds * 1e6;
        let options = SampleOptions {
            node_ranks: node_ranks as usize,
            only_whole,
            most_bytes,
            dtype: dtype.0,
            total_us,
            ..SampleOptions::new(world as usize)
        };
        let sampler = Sampler::new(&options)?;
        Ok(PySampler { options, sampler: Mutex::new(sampler) })
    }

    /// The sample to take: collective, members, bytes, calls; None after the last one.
    fn next_sample(&self) -> Option<(String, Vec<usize>, u64, u64)> {
        let sample = self.lock().next_sample()?;
        Some((sample.collective.to_string(), sample.members, sample.bytes, sample.calls))
    }

    /// Records the microseconds of all calls of the sample, those of the slowest rank.
    fn record(&self, #[pyo3(from_py_with = number)] us: f64) {
        self.lock().record(us);
    }

    /// The network, the report as JSON, and the table of all samples.
    fn finish(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = text)] name: Option<String>,
        #[pyo3(from_py_with = text)] source: String,
        #[pyo3(from_py_with = text)] date: Option<String>,
    ) -> Answer<(PyTopology, String, String)> {
        let Sampled { table, unsettled } = self.lock().clone().finish();
        let SampleOptions { world, node_ranks, .. } = self.options;
        let node_ranks = (node_ranks < world).then_some(node_ranks);
        let options = Options { name, date, node_ranks, ..Options::new(source) };
        let (profile, report) = py.detach(|| calibrate(&table, &options))?;
        let report = json::write(&Reported { report: &report, unsettled: &unsettled })?;
        Ok((PyTopology(Topology::try_from(profile)?), report, table.to_string()))
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PySampler>()
}
