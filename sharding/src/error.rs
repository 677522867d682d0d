//! Errors of meshes and shardings: values with operands, printed as one line.

use core::fmt;

use reshard_layout::internal::counted;
use reshard_layout::{ErrorKind, Excerpt};

/// Why a mesh, placement, sharding or view could not be made.
///
/// `Display` is one line with the offending values; [`Error::code`] is the machine-readable identifier.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// A text that does not follow its notation.
    Parse {
        /// The notation that was parsed, such as `mesh` or `placements`.
        what: &'static str,
        /// The whole text.
        input: String,
        /// Byte offset of the error in `input`.
        at: usize,
        /// The expected text at that offset.
        expected: String,
    },
    /// A number that does not fit.
    Overflow {
        /// The quantity that was computed.
        what: String,
    },
    /// A mesh that cannot be: repeated names, no ranks on an axis, modes that are not separable.
    Mesh {
        /// The reason, with the values.
        reason: String,
    },
    /// A list of ranks or a text that is not a layout.
    NotALayout {
        /// The reason, with the values.
        reason: String,
    },
    /// A rank that the mesh does not hold.
    NoSuchRank {
        /// The requested rank.
        rank: usize,
        /// The mesh, printed.
        mesh: String,
    },
    /// An axis that the mesh does not have.
    NoSuchAxis {
        /// The requested axis.
        axis: String,
        /// The mesh, printed.
        mesh: String,
    },
    /// Not one placement for each mesh axis.
    PlacementCount {
        /// The number of placements.
        placements: usize,
        /// The number of axes of the mesh.
        axes: usize,
        /// The mesh, printed.
        mesh: String,
    },
    /// A dim that the tensor does not have.
    NoSuchDim {
        /// The requested dim.
        dim: usize,
        /// The number of dims of the tensor.
        dims: usize,
        /// The placement that names it, printed, if one does.
        placement: Option<String>,
    },
    /// A notation by tensor that does not name each dim of the tensor once.
    DimCount {
        /// The number of dims that the text names.
        named: usize,
        /// The number of dims of the tensor.
        dims: usize,
        /// The text.
        text: String,
    },
    /// A placement that cannot be, such as a split factor of zero or partial ops that do not mix.
    Placement {
        /// The reason, with the values.
        reason: String,
    },
    /// A notation with more than one reading on a dim that does not divide.
    Uneven {
        /// The reason, with the values.
        reason: String,
    },
    /// A gradient of a value that has none.
    NoGradient {
        /// The value without a gradient, and the remedy.
        reason: String,
    },
    /// A notation that cannot hold this sharding.
    NotRepresentable {
        /// The notation.
        notation: &'static str,
        /// The part that it cannot hold.
        reason: String,
    },
    /// A region of more ranges than may be listed.
    TooFragmented {
        /// The dim.
        dim: usize,
        /// The number of ranges.
        pieces: usize,
        /// The maximum number of listed ranges.
        limit: usize,
    },
    /// A view that cannot be, such as one of another number of elements.
    View {
        /// The reason, with the values.
        reason: String,
    },
    /// A view that is not free: it needs a redistribution first.
    NeedsRedistribution {
        /// The obstacle to the view.
        reason: String,
        /// A sharding, printed, from which the view is free.
        first: String,
        /// The number of elements that the worst rank needs there and does not hold.
        ///
        /// If partial values remain to be reduced, a plan may need fewer.
        elements: u64,
    },
    /// Shards that do not denote one tensor.
    InconsistentShards {
        /// The reason, with the values.
        reason: String,
    },
    /// An error of the layout algebra underneath.
    Layout(reshard_layout::Error),
}

impl Error {
    /// Returns the kind of the error as a machine-readable identifier.
    ///
    /// ```
    /// let e = "dp=2,dp=4".parse::<reshard_sharding::Mesh>().unwrap_err();
    /// assert_eq!(e.code(), "mesh");
    /// ```
    pub fn code(&self) -> &'static str {
        match self {
            Error::Parse { .. } => "parse",
            Error::Overflow { .. } => "overflow",
            Error::Mesh { .. } => "mesh",
            Error::NotALayout { .. } => "not_a_layout",
            Error::NoSuchRank { .. } => "no_such_rank",
            Error::NoSuchAxis { .. } => "no_such_axis",
            Error::PlacementCount { .. } => "placement_count",
            Error::NoSuchDim { .. } => "no_such_dim",
            Error::DimCount { .. } => "dim_count",
            Error::Placement { .. } => "placement",
            Error::Uneven { .. } => "uneven",
            Error::NoGradient { .. } => "no_gradient",
            Error::NotRepresentable { .. } => "not_expressible",
            Error::TooFragmented { .. } => "too_fragmented",
            Error::View { .. } => "view",
            Error::NeedsRedistribution { .. } => "needs_redistribute",
            Error::InconsistentShards { .. } => "meaningless",
            Error::Layout(e) => e.code(),
        }
    }

    /// Returns the kind, to match on.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::Parse { .. } => ErrorKind::Parse,
            Error::NotRepresentable { .. } => ErrorKind::NotRepresentable,
            Error::NeedsRedistribution { .. } => ErrorKind::NeedsRedistribution,
            Error::NoGradient { .. } | Error::TooFragmented { .. } => ErrorKind::Unsupported,
            Error::Overflow { .. }
            | Error::Mesh { .. }
            | Error::NotALayout { .. }
            | Error::NoSuchRank { .. }
            | Error::NoSuchAxis { .. }
            | Error::PlacementCount { .. }
            | Error::NoSuchDim { .. }
            | Error::DimCount { .. }
            | Error::Placement { .. }
            | Error::Uneven { .. }
            | Error::View { .. }
            | Error::InconsistentShards { .. } => ErrorKind::InvalidInput,
            Error::Layout(e) => e.kind(),
        }
    }

    /// Returns the error of a number that does not fit.
    #[doc(hidden)]
    pub fn overflow(what: impl Into<String>) -> Error {
        Error::Overflow { what: what.into() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Parse { what, input, at, expected } => {
                let text = Excerpt::around(input, *at);
                write!(f, "cannot read the {what} `{text}`: expected {expected} at byte {at}")
            }
            Error::Overflow { what } => write!(f, "{what} does not fit in 63 bits"),
            Error::Mesh { reason }
            | Error::NotALayout { reason }
            | Error::Placement { reason }
            | Error::Uneven { reason }
            | Error::NoGradient { reason }
            | Error::View { reason }
            | Error::InconsistentShards { reason } => f.write_str(reason),
            Error::NoSuchRank { rank, mesh } => write!(f, "rank {rank} is not in {}", named(mesh)),
            Error::NoSuchAxis { axis, mesh } => {
                write!(f, "{} has no axis {:?}", named(mesh), Excerpt::of(axis).to_string())
            }
            Error::PlacementCount { placements, axes, mesh } => write!(
                f,
                "{} has {axes} but there {are} {placements}: give one per axis",
                named(mesh),
                axes = counted(axes, "axis", "axes"),
                are = if *placements == 1 { "is" } else { "are" },
                placements = counted(placements, "placement", "placements")
            ),
            Error::NoSuchDim { dim, dims, placement } => {
                match placement {
                    Some(placement) => write!(f, "{placement} shards dim {dim}")?,
                    None => write!(f, "dim {dim} was requested")?,
                }
                write!(f, ", but the tensor has {dims} (counted from 0)", dims = counted(dims, "dim", "dims"))
            }
            Error::DimCount { named, dims, text } => {
                let text = Excerpt::of(text);
                write!(
                    f,
                    "{text} names {named}, but the tensor has {dims}: give one {{..}} per dim",
                    named = counted(named, "dim", "dims")
                )
            }
            Error::NotRepresentable { notation, reason } => {
                write!(f, "the {notation} notation cannot hold this sharding: {reason}")
            }
            Error::TooFragmented { dim, pieces, limit } => {
                write!(f, "dim {dim} has {pieces} ranges on one rank, more than the limit of {limit}")
            }
            Error::NeedsRedistribution { reason, first, elements } => write!(
                f,
                "{reason}: redistribute to {first} first, for which the worst rank receives {elements}",
                elements = counted(elements, "element", "elements")
            ),
            Error::Layout(e) => e.fmt(f),
        }
    }
}

/// Formats a mesh for a message; one without axes prints as nothing.
fn named(mesh: &str) -> String {
    if mesh.is_empty() { "the mesh without axes".to_owned() } else { format!("the mesh {mesh}") }
}

impl core::error::Error for Error {}

impl From<reshard_layout::Error> for Error {
    fn from(e: reshard_layout::Error) -> Error {
        Error::Layout(e)
    }
}
