//! Profiles: a network as it is stored in files, with where its numbers come from.

use core::fmt;
use core::ops::RangeInclusive;
use core::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::Error;
use crate::model::Level;
use crate::model::curve_bounds::CurveBounds;
use crate::model::curves::{Curve, Curves};

/// A network as files have it: numbers of levels, curves where collectives were measured, and their source.
///
/// Its text is TOML. [`Topology`](crate::Topology) is the checked form, `Topology::try_from(profile)`.
///
/// ```
/// use reshard_planner::{Curve, Profile, StepOp, Topology};
/// let mut profile = Profile::from(Topology::uniform());
/// profile.curves.push(Curve {
///     collective: StepOp::AllGather,
///     spread: vec![8],
///     bytes: vec![1 << 10, 1 << 20],
///     us: vec![10.0, 17.5],
///     p90_percent: None,
/// });
/// assert_eq!(profile.to_string().parse::<Profile>()?, profile);
/// let topology = Topology::try_from(profile)?;
/// assert!(topology.to_string().contains(";curves="));
/// # Ok::<(), reshard_planner::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// The name in reports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Time to start a communicating step, in microseconds.
    pub launch_us: f64,
    /// Time per peer of an exchange, in microseconds.
    pub message_us: f64,
    /// Levels from the inside out.
    pub levels: Vec<Level>,
    /// The source of the numbers; without one they are nominal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<Source>,
    /// The compute rates of a rank.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compute: Option<Compute>,
    /// The measured collectives.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub curves: Vec<Curve>,
}

impl Profile {
    /// Returns the profile of levels alone.
    pub(super) fn of_lines(launch_us: f64, message_us: f64, levels: Vec<Level>) -> Profile {
        Profile {
            name: None,
            launch_us,
            message_us,
            levels,
            measured: None,
            compute: None,
            curves: Vec::new(),
        }
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&toml::to_string(self).map_err(|_| fmt::Error)?)
    }
}

impl FromStr for Profile {
    type Err = Error;

    /// Parses the text of a file, which is TOML.
    fn from_str(text: &str) -> Result<Profile, Error> {
        toml::from_str(text).map_err(|error| Error::Topology { reason: one_line(&error, text) })
    }
}

/// Returns the message of an error in a file, with the line in which it is.
fn one_line(error: &toml::de::Error, text: &str) -> String {
    let line =
        error.span().and_then(|span| text.get(..span.start)).map(|before| 1 + before.matches('\n').count());
    let message = error.message();
    line.map_or_else(|| message.to_owned(), |line| format!("line {line}: {message}"))
}

/// The compute rates of a rank.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Compute {
    /// 10^12 operations per second on elements of at most 8 bits, of 16, of 32, and of more.
    pub tflops: [f64; 4],
    /// Gigabytes (10^9 bytes) per second that are read and written.
    pub memory_gbytes_per_s: f64,
    /// The source of the rates, such as `data sheet, dense`.
    pub from: String,
}

/// The source of the numbers of a profile, and the error to expect.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// The program and the version that measured, such as `nccl-tests, NCCL 2.29.2`.
    pub from: String,
    /// The element type of the measured reductions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dtype: Option<String>,
    /// The day of the measurement or of the publication.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub date: Option<String>,
    /// The median error at a size that is left out, in percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub median_error_percent: Option<f64>,
    /// The 90th percentile of that error, in percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p90_error_percent: Option<f64>,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "measured by {}", self.from)?;
        for more in [&self.dtype, &self.date].into_iter().flatten() {
            write!(f, ", {more}")?;
        }
        if let (Some(median), Some(p90)) = (self.median_error_percent, self.p90_error_percent) {
            write!(f, "; expected error {median:.1} % (median), {p90:.1} % (p90)")?;
        }
        Ok(())
    }
}

/// The compute rates of a rank in TFLOP/s and GB/s, so that times are finite.
const COMPUTE: RangeInclusive<f64> = 1e-6..=1e9;

/// The name and the source of a network, and its curves.
#[derive(Clone, Debug)]
pub struct Calibration {
    profile: Profile,
    measured: Option<Measured>,
}

/// The curves of a network and their bounds.
#[derive(Clone, Debug)]
pub(super) struct Measured {
    pub(super) curves: Curves,
    pub(super) bounds: CurveBounds,
}

impl Calibration {
    /// Checks a profile; `None` if it has nothing but levels.
    pub(super) fn new(
        profile: Profile,
        launch_us: f64,
        levels: &[Level],
    ) -> Result<Option<Calibration>, Error> {
        let Profile { name, measured, compute, curves, .. } = &profile;
        if name.is_none() && measured.is_none() && compute.is_none() && curves.is_empty() {
            return Ok(None);
        }
        if let Some(Compute { tflops, memory_gbytes_per_s, .. }) = compute
            && !tflops.iter().chain([memory_gbytes_per_s]).all(|rate| COMPUTE.contains(rate))
        {
            let (least, most) = (COMPUTE.start(), COMPUTE.end());
            let reason = format!(
                "compute rates of {tflops:?} TFLOP/s and {memory_gbytes_per_s} GB/s: each must be {least:e} to {most:e}"
            );
            return Err(Error::Topology { reason });
        }
        let measured = if profile.curves.is_empty() {
            None
        } else {
            let curves = Curves::new(&profile.curves, levels)?;
            let bounds = CurveBounds::new(&curves, launch_us, levels);
            Some(Measured { curves, bounds })
        };
        Ok(Some(Calibration { profile, measured }))
    }

    /// Returns the profile as it was given.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    #[inline]
    pub(super) fn measured(&self) -> Option<&Measured> {
        self.measured.as_ref()
    }
}
