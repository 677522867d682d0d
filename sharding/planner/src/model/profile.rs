//! Profiles: a network as it is stored in files, with where its numbers come from.

use core::fmt;

use serde::{Deserialize, Serialize};

use crate::Error;
use crate::model::Level;
use crate::model::curve_bounds::CurveBounds;
use crate::model::curves::{Curve, Curves};

/// A network as files have it: numbers of levels, curves where collectives were measured, and their source.
///
/// [`Topology`](crate::Topology) is the checked form, `Topology::try_from(profile)`.
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
    /// The measured collectives.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub curves: Vec<Curve>,
}

impl Profile {
    /// Returns the profile of levels alone.
    pub(super) fn of_lines(launch_us: f64, message_us: f64, levels: Vec<Level>) -> Profile {
        Profile { name: None, launch_us, message_us, levels, measured: None, curves: Vec::new() }
    }
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
        if profile.name.is_none() && profile.measured.is_none() && profile.curves.is_empty() {
            return Ok(None);
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
