//! The text of a planner: its settings as `name=value`, separated by spaces.

use core::fmt;
use core::str::FromStr;

use serde::de::Error as _;
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::Error;
use crate::arithmetic::Arithmetic;
use crate::budget::SearchBudget;
use crate::planner::Planner;

/// Formats the settings that differ from the default, after the network and the objective.
///
/// A custom [`CostModel`](crate::CostModel) is written as `cost_model=..`, which does not parse.
impl fmt::Display for Planner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let options = self.options();
        let network = if options.model.is_custom() { "cost_model" } else { "topology" };
        write!(f, "{network}={} objective={}", options.cost_model(), options.objective())?;
        if let Some(bytes) = options.max_peak_bytes() {
            write!(f, " max_peak_bytes={bytes}")?;
        }
        if let Some(groups) = options.groups() {
            f.write_str(" groups=")?;
            for (i, group) in groups.iter().enumerate() {
                write!(f, "{}{group}", if i == 0 { "" } else { "|" })?;
            }
        }
        if options.is_deterministic() {
            f.write_str(" deterministic=true")?;
        }
        if options.arithmetic() != Arithmetic::default() {
            write!(f, " arithmetic={}", options.arithmetic())?;
        }
        if options.budget() != SearchBudget::default() {
            write!(f, " budget={}", options.budget())?;
        }
        Ok(())
    }
}

impl FromStr for Planner {
    type Err = Error;

    /// Parses settings in any order; each has its default unless given.
    ///
    /// ```text
    /// topology        uniform, h100, or the text of a Topology
    /// objective       time, bytes or peak
    /// max_peak_bytes  the maximum number of bytes on any rank
    /// groups          the only groups to use, separated by `|`; empty for none
    /// deterministic   true or false
    /// arithmetic      kernels or framework
    /// budget   units of work, or `none`
    /// ```
    ///
    /// ```
    /// use reshard_planner::Planner;
    /// let planner: Planner = "topology=h100 objective=peak groups=4:1|2:4".parse()?;
    /// assert_eq!(planner.options().cost_model(), "h100");
    /// assert_eq!(planner.to_string().parse(), Ok(planner));
    /// # Ok::<(), reshard_planner::Error>(())
    /// ```
    fn from_str(text: &str) -> Result<Planner, Error> {
        let mut planner = Planner::new();
        let mut given = Vec::new();
        for setting in text.split_ascii_whitespace() {
            let (name, value) = setting
                .split_once('=')
                .ok_or_else(|| Error::unknown("planner setting", setting, "name=value"))?;
            if given.contains(&name) {
                return Err(Error::unknown(
                    "planner",
                    text,
                    &format!("each setting once, but `{name}` is given twice,"),
                ));
            }
            given.push(name);
            planner = planner.set(name, value)?;
        }
        Ok(planner)
    }
}

impl Planner {
    /// Returns this planner with one more setting of its notation.
    fn set(self, name: &str, value: &str) -> Result<Planner, Error> {
        Ok(match name {
            "topology" => self.topology(value.parse()?),
            "objective" => self.objective(value.parse()?),
            "max_peak_bytes" => self.max_peak_bytes(value.parse().map_err(|_| {
                Error::unknown("setting max_peak_bytes", value, "a number of bytes below 2^64")
            })?),
            "groups" => {
                let groups: Result<Vec<_>, _> =
                    value.split('|').filter(|text| !text.is_empty()).map(str::parse).collect();
                self.with_groups(groups?)
            }
            "deterministic" => self.deterministic(
                value.parse().map_err(|_| Error::unknown("setting deterministic", value, "true or false"))?,
            ),
            "arithmetic" => self.arithmetic(value.parse()?),
            "budget" => self.budget(value.parse()?),
            _ => {
                let known =
                    "topology, objective, max_peak_bytes, groups, deterministic, arithmetic or budget";
                return Err(Error::unknown("planner setting", name, known));
            }
        })
    }
}

/// Fails for a planner with a custom cost model: text cannot restore it.
impl Serialize for Planner {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.options().model.is_custom() {
            let reason = format!("the cost model {} cannot be stored as text", self.options().cost_model());
            return Err(S::Error::custom(reason));
        }
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Planner {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Planner, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}
