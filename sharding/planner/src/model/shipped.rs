//! The networks that the library knows by name.

use std::sync::LazyLock;

use crate::model::profile::Profile;
use crate::model::topology::Topology;

/// A network that is known by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shipped {
    Uniform,
    H100,
    A100,
    B200,
    H100Lines,
}

impl Shipped {
    pub(super) const ALL: [Shipped; 5] =
        [Shipped::Uniform, Shipped::H100, Shipped::A100, Shipped::B200, Shipped::H100Lines];

    pub(super) fn name(self) -> &'static str {
        match self {
            Shipped::Uniform => "uniform",
            Shipped::H100 => "h100",
            Shipped::A100 => "a100",
            Shipped::B200 => "b200",
            Shipped::H100Lines => "h100-lines",
        }
    }

    pub(super) fn named(name: &str) -> Option<Shipped> {
        Shipped::ALL.into_iter().find(|shipped| shipped.name() == name)
    }

    /// Returns the one with the same costs, if there is one.
    pub(super) fn equal_to(topology: &Topology) -> Option<Shipped> {
        let is_equal = |shipped: &Shipped| shipped.topology() == *topology;
        // Profiles with curves are read only for networks that have some.
        Shipped::ALL.into_iter().filter(|s| s.has_curves() == topology.has_curves()).find(is_equal)
    }

    fn has_curves(self) -> bool {
        match self {
            Shipped::H100 | Shipped::A100 | Shipped::B200 => true,
            Shipped::Uniform | Shipped::H100Lines => false,
        }
    }

    pub(super) fn topology(self) -> Topology {
        // The bounds of curves are computed once.
        macro_rules! read {
            ($file:literal) => {{
                static READ: LazyLock<Topology> =
                    LazyLock::new(|| parsed(include_str!(concat!("../../profiles/", $file))));
                READ.clone()
            }};
        }
        match self {
            Shipped::Uniform => Topology::uniform(),
            Shipped::H100 => read!("h100.toml"),
            Shipped::A100 => read!("a100.toml"),
            Shipped::B200 => read!("b200.toml"),
            Shipped::H100Lines => Topology::h100_lines(),
        }
    }
}

/// Reads a profile of this crate; a test reads them all.
fn parsed(text: &str) -> Topology {
    let profile: Profile = text.parse().expect("a profile of this crate is valid");
    Topology::try_from(profile).expect("a profile of this crate is valid")
}

#[cfg(test)]
mod tests {
    use super::Shipped;
    use crate::Topology;

    #[test]
    fn all_are_read_by_their_names() {
        for shipped in Shipped::ALL {
            let topology: Topology = shipped.name().parse().unwrap();
            assert_eq!(topology.to_string(), shipped.name());
            assert!(topology.origin().starts_with(shipped.name()));
            assert_eq!(topology.has_curves(), shipped.has_curves());
            assert_eq!(topology.compute().is_some(), shipped.has_curves());
        }
    }
}
