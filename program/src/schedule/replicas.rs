//! Detects ranks whose replicas differ, by comparing hashes of their values.
//!
//! ```text
//! each rank     run_hashed: like run, with a hash of every value that it is given, computes or receives
//! all ranks     Program::check_replicas: along every axis with R or I, compares ranks that differ only in that axis
//! ```
//!
//! The types of a program are proved from its text. They cannot detect a kernel that draws its own random
//! numbers, or an input of which ranks were given different copies.

use core::fmt;
use core::str::FromStr;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher};

use crate::schedule::build::refused;
use crate::schedule::{
    ArenaSlice, ExchangeEngine, Instruction, Kernels, PreparedSchedule, RunError, Schedule,
};
use crate::{Error, Program, Value};

/// Hashes of one rank's values of a program, for [`Program::check_replicas`].
///
/// Displays as lines, `rank 3` and `x 0123456789abcdef`. It can be parsed from these lines, so that ranks can
/// send theirs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ValueHashes {
    rank: usize,
    of: BTreeMap<String, u64>,
}

impl ValueHashes {
    /// Returns the rank.
    #[doc(hidden)]
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Returns the hash of a value; `None` for a value without a separate buffer, such as a view.
    #[doc(hidden)]
    pub fn get(&self, name: &str) -> Option<u64> {
        self.of.get(name).copied()
    }

    /// Returns the number of hashed values.
    #[doc(hidden)]
    pub fn len(&self) -> usize {
        self.of.len()
    }

    /// Returns `true` if there are none.
    #[doc(hidden)]
    pub fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    fn take(&mut self, name: &str, at: ArenaSlice, arena: &[u8]) {
        let mut hasher = DefaultHasher::new();
        hasher.write(&arena[at.range()]);
        let hash = hasher.finish();
        match self.of.get_mut(name) {
            Some(known) => *known = hash,
            None => {
                self.of.insert(name.to_owned(), hash);
            }
        }
    }
}

impl fmt::Display for ValueHashes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {}", self.rank)?;
        self.of.iter().try_for_each(|(name, hash)| write!(f, "\n{name} {hash:016x}"))
    }
}

impl FromStr for ValueHashes {
    type Err = Error;

    fn from_str(text: &str) -> Result<ValueHashes, Error> {
        let mut lines = text.lines();
        let first = lines.next().unwrap_or_default();
        let rank = first.strip_prefix("rank ").and_then(|rank| rank.parse().ok());
        let Some(rank) = rank else {
            return Err(refused(format!(
                "invalid first line {first:?} of hashes; expected the rank, such as `rank 3`"
            )));
        };
        let of = lines.map(|line| {
            let read = line.split_once(' ').and_then(|(name, hash)| {
                let is_hash = hash.len() == 16 && hash.bytes().all(|c| c.is_ascii_hexdigit());
                let hash = is_hash.then(|| u64::from_str_radix(hash, 16).ok())??;
                Some((name.to_owned(), hash))
            });
            read.ok_or_else(|| {
                refused(format!(
                    "invalid hash {line:?}; write a name and 16 hex digits, such as `x 0123456789abcdef`"
                ))
            })
        });
        Ok(ValueHashes { rank, of: of.collect::<Result<_, _>>()? })
    }
}

impl PreparedSchedule<'_> {
    /// Runs like [`run`](PreparedSchedule::run), and hashes everything that the rank is given, computes and receives.
    ///
    /// It reads all of that a second time, so use it to search for an error.
    pub fn run_hashed<K, X>(
        &self,
        kernels: &mut K,
        exchanges: &mut X,
        arena: &mut [u8],
    ) -> Result<ValueHashes, RunError<K::Error, X::Error>>
    where
        K: Kernels<Buffer = [u8]>,
        X: ExchangeEngine<Buffer = [u8]>,
    {
        let Schedule { args: all, names, exchanges: transfers, buffers: locals, .. } = self.schedule;
        let mut hashes = ValueHashes { rank: self.schedule.rank, of: BTreeMap::new() };
        for input in locals.iter().filter(|local| local.is_input) {
            hashes.take(&input.name, input.slice, arena);
        }
        for (instr, of) in self.instrs.iter().zip(&self.schedule.instructions) {
            self.step(instr, kernels, exchanges, arena)?;
            match (instr, of) {
                (Instruction::Call { args, .. }, Instruction::Call { kernel, .. }) => {
                    let takes = self.schedule.calls[*kernel as usize].inputs.len();
                    for arg in (args.start as usize..args.end as usize).skip(takes) {
                        hashes.take(&names[arg], all[arg], arena);
                    }
                }
                (Instruction::Wait { exchange }, _) => {
                    for moved in &transfers[*exchange as usize].moves {
                        hashes.take(&moved.values.1, moved.target, arena);
                    }
                }
                (Instruction::Call { .. } | Instruction::Post { .. }, _) => {}
            }
        }
        Ok(hashes)
    }
}

impl Program {
    /// Checks that replicas are equal, by the [hashes](PreparedSchedule::run_hashed) of all ranks.
    ///
    /// Returns the number of compared pairs.
    ///
    /// ```
    /// use reshard_program::{Program, schedule::ValueHashes};
    /// let program: Program = "mesh tp=2\nx: f32[4] I\ny = exp(x)".parse()?;
    /// let hashes = |text: &str| text.parse::<ValueHashes>();
    /// let first = hashes("rank 0\nx 0000000000000001\ny 0000000000000002")?;
    /// let same = hashes("rank 1\nx 0000000000000001\ny 0000000000000002")?;
    /// assert_eq!(program.check_replicas(&[first.clone(), same])?, 2);
    /// let other = hashes("rank 1\nx 0000000000000001\ny 0000000000000003")?;
    /// assert!(program.check_replicas(&[first, other]).unwrap_err().to_string().starts_with(
    ///     "`y` is the same over tp by its type, but differs between ranks 0 and 1"
    /// ));
    /// # Ok::<(), reshard_program::Error>(())
    /// ```
    ///
    /// Returns the error `replicas` for the first value of which two ranks have different bytes, with its
    /// name, the axis and the ranks.
    pub fn check_replicas(&self, hashes: &[ValueHashes]) -> Result<usize, Error> {
        let mut of_rank: BTreeMap<usize, usize> = BTreeMap::new();
        for (n, hashes) in hashes.iter().enumerate() {
            of_rank.insert(hashes.rank, n);
        }
        let mut compared = 0;
        for value in self.values() {
            for (&rank, &own) in &of_rank {
                let Some(hash) = hashes[own].get(&value.name) else { continue };
                for (axis, first) in replicas_of(value, rank) {
                    let Some(other) = of_rank.get(&first).and_then(|&other| hashes[other].get(&value.name))
                    else {
                        continue;
                    };
                    if hash != other {
                        return Err(lie(value, axis, first, rank));
                    }
                    compared += 1;
                }
            }
        }
        Ok(compared)
    }
}

/// Returns, for every axis along which the rank has replicas, the first rank of these, if it is another.
fn replicas_of(value: &Value, rank: usize) -> Vec<(usize, usize)> {
    let is = &value.ty.value;
    let mesh = is.mesh();
    let (Some(at), Ok(own)) = (mesh.coordinate(rank), is.region(rank)) else { return Vec::new() };
    let first = |axis: usize| {
        let mut first = at.clone();
        let own_place = std::mem::take(first.get_mut(axis)?);
        let other = mesh.rank_at(&first).filter(|_| own_place > 0)?;
        let terms = is.partial().iter().any(|terms| terms.sub.axis == axis);
        (!terms && is.region(other).as_ref() == Ok(&own)).then_some((axis, other))
    };
    (0..mesh.axes().len()).filter_map(first).collect()
}

fn lie(value: &Value, axis: usize, first: usize, rank: usize) -> Error {
    Error::Replicas {
        reason: format!(
            "`{}` is the same over {} by its type, but differs between ranks {first} and {rank}; look for random numbers without a key, and for inputs that differ between ranks",
            value.name,
            value.ty.value.mesh().axes()[axis].name()
        ),
    }
}
