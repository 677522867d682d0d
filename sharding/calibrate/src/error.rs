//! Errors of tables and of calibrations: values with operands, printed as one line.

use core::fmt;

use reshard_kernels::DType;

/// The measured collectives.
const NAMES: &str = "all_gather, reduce_scatter, all_reduce, all_to_all";

/// The reason why a table gives no profile, or cannot be compared with one.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Error {
    /// A line of the table that is not a measurement.
    Line {
        /// The number of the line, from 1.
        line: usize,
        /// The fault.
        fault: Fault,
    },
    /// No line is left.
    Empty {
        /// The condition that no line satisfies, and the values that lines have for its key.
        unmet: Option<(String, Vec<String>)>,
    },
    /// Measurements of several element types, which take different times.
    Dtypes {
        /// The element types.
        dtypes: Vec<String>,
    },
    /// More ranks in a node than the nodes of the network have.
    Node {
        /// Ranks in a node of the table.
        ranks: usize,
        /// Ranks in a node of the network.
        node: usize,
    },
    /// Nodes of a table on a network whose levels do not have such nodes.
    Levels {
        /// The number of levels of the network.
        levels: usize,
    },
    /// Options that describe no measurement.
    Samples(SampleFault),
    /// A profile that the planner rejects.
    Planner(reshard_planner::Error),
}

/// The fault of a line of a table.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Fault {
    /// A line that is not a JSON object.
    NotAnObject,
    /// A key without which a line is not a measurement.
    Missing {
        /// The key.
        key: &'static str,
    },
    /// A value that its key does not take.
    Value {
        /// The key.
        key: &'static str,
        /// The value as JSON.
        value: String,
        /// The values that it takes.
        expected: &'static str,
    },
    /// Ranks that nodes do not have in equal numbers.
    Uneven {
        /// The number of ranks in all.
        ranks: usize,
        /// The number of nodes.
        nodes: usize,
    },
    /// Ranks in all that are not those of the nodes.
    Ranks {
        /// The number of ranks in all.
        ranks: usize,
        /// The number of nodes.
        nodes: usize,
        /// The number of ranks in each.
        ranks_per_node: usize,
    },
    /// A group of a single rank.
    OneRank,
    /// Lists of different lengths.
    Lengths {
        /// The number of sizes.
        bytes: usize,
        /// The number of times.
        us: usize,
    },
}

/// The fault of options of a [`Sampler`](crate::Sampler).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SampleFault {
    /// A world of less than two ranks, or of nodes with different numbers of ranks.
    Ranks {
        /// The number of ranks.
        world: usize,
        /// The ranks of a node.
        node_ranks: usize,
    },
    /// A greatest size of 0 bytes, or of more than a TiB.
    Bytes(u64),
    /// A time or a tolerance that is not a positive number.
    Limits,
    /// No collective, or one that is not measured.
    Collectives,
    /// An element type of less than a byte.
    DType(DType),
}

impl Error {
    /// Returns the kind of the error as an identifier for machines.
    pub fn code(&self) -> &'static str {
        match self {
            Error::Line { .. } | Error::Empty { .. } | Error::Dtypes { .. } => "table",
            Error::Node { .. } | Error::Levels { .. } => "topology",
            Error::Samples(_) => "samples",
            Error::Planner(error) => error.code(),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Line { line, fault } => write!(f, "line {line} {fault}"),
            Error::Empty { unmet: None } => f.write_str("has no measurement"),
            Error::Empty { unmet: Some((condition, values)) } if values.is_empty() => {
                write!(f, "has no line with {condition}")
            }
            Error::Empty { unmet: Some((condition, values)) } => {
                write!(f, "has no line with {condition}; it has: {}", values.join(", "))
            }
            Error::Dtypes { dtypes } => write!(
                f,
                "has measurements of {}, which take different times; choose one, as with `--where dtype={}`",
                dtypes.join(", "),
                dtypes[0]
            ),
            Error::Node { ranks, node } => {
                write!(f, "has {ranks} ranks in one node, but nodes of the network have {node}")
            }
            Error::Levels { levels: 1 } => {
                f.write_str("has several nodes, but the network has one level; choose one node, as with `--where nodes=1`")
            }
            Error::Levels { levels } => {
                write!(f, "has nodes only, but the network has {levels} levels; a table can judge two")
            }
            Error::Samples(fault) => fault.fmt(f),
            Error::Planner(error) => error.fmt(f),
        }
    }
}

impl fmt::Display for SampleFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SampleFault::Ranks { world: world @ (0 | 1), .. } => {
                write!(f, "the world has {world} ranks, which do not communicate; start at least 2")
            }
            SampleFault::Ranks { world, node_ranks } => {
                write!(f, "the world has {world} ranks, which are not a multiple of {node_ranks} in a node")
            }
            SampleFault::Bytes(bytes) => {
                write!(f, "the greatest size is {bytes} B; expected 1 B to 1 TiB")
            }
            SampleFault::Limits => f.write_str("times and tolerances must be positive numbers"),
            SampleFault::Collectives => write!(f, "collectives to measure must be some of {NAMES}"),
            SampleFault::DType(dtype) => write!(f, "an element of {dtype} is less than a byte"),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::NotAnObject => f.write_str("is not a JSON object"),
            Fault::Missing { key: key @ ("bytes" | "us") } => write!(
                f,
                "has no `{key}`, so it is not a measured time; choose the measured lines, as with `--where kind=measured`"
            ),
            Fault::Missing { key } => write!(f, "has no `{key}`"),
            Fault::Value { key, value, expected } => write!(f, "has `{key}` {value}; expected {expected}"),
            Fault::Uneven { ranks, nodes } => {
                write!(f, "has {ranks} ranks on {nodes} nodes; expected as many on each")
            }
            Fault::Ranks { ranks, nodes, ranks_per_node } => {
                write!(f, "has {ranks} ranks on {nodes} nodes, but {ranks_per_node} on each")
            }
            Fault::OneRank => f.write_str("has one rank, which does not communicate"),
            Fault::Lengths { bytes, us } => write!(f, "has {bytes} sizes and {us} times"),
        }
    }
}

impl std::error::Error for Error {}

impl From<reshard_planner::Error> for Error {
    fn from(error: reshard_planner::Error) -> Error {
        Error::Planner(error)
    }
}
