//! Replicas that are none: what ranks have of a value that is the same on them, compared by hashes.
//!
//! ```text
//! each rank     run_hashed: as run, and a hash of every value that it is given, computes or receives
//! together      Program::replicas: along every axis of which a type says R or I, those of ranks that differ in nothing else
//! ```
//!
//! Types are proved of what the program says. What they cannot see is a kernel that draws random numbers of its own, or an input of
//! which ranks were given different copies.

use core::fmt;
use core::str::FromStr;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher};

use crate::schedule::build::refused;
use crate::schedule::{ArenaSlice, ExchangeEngine, Instruction, Kernels, PreparedSchedule, Schedule};
use crate::{Error, Program, Value};

/// Hashes of what one rank had of the values of a program, for [`Program::replicas`].
///
/// Displays as lines, `rank 3` and `x 0123456789abcdef`, and is read from them, so that ranks can send theirs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ValueHashes {
    rank: usize,
    of: BTreeMap<String, u64>,
}

impl ValueHashes {
    /// The rank.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// The hash of what it had of a value; none of what it had no bytes of its own for, as of a view.
    pub fn get(&self, name: &str) -> Option<u64> {
        self.of.get(name).copied()
    }

    /// How many values it had.
    pub fn len(&self) -> usize {
        self.of.len()
    }

    /// Whether it had none.
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
                "hashes begin with their rank, like rank 3, and not with {first:?}"
            )));
        };
        let of = lines.map(|line| {
            let read = line.split_once(' ').and_then(|(name, hash)| {
                let is_hash = hash.len() == 16 && hash.bytes().all(|c| c.is_ascii_hexdigit());
                let hash = is_hash.then(|| u64::from_str_radix(hash, 16).ok())??;
                Some((name.to_owned(), hash))
            });
            read.ok_or_else(|| refused(format!("{line:?} is no hash: it is like x 0123456789abcdef")))
        });
        Ok(ValueHashes { rank, of: of.collect::<Result<_, _>>()? })
    }
}

impl PreparedSchedule<'_> {
    /// As [`run`](Prepared::run), and a hash of everything that the rank is given, computes and receives.
    ///
    /// It reads all of that once more: for when one looks for an error.
    pub fn run_hashed<K, X, E>(
        &self,
        kernels: &mut K,
        exchanges: &mut X,
        arena: &mut [u8],
    ) -> Result<ValueHashes, E>
    where
        K: Kernels<Buffer = [u8]>,
        X: ExchangeEngine<Buffer = [u8]>,
        E: From<K::Error> + From<X::Error>,
    {
        let Schedule { args: all, names, exchanges: transfers, buffers: locals, .. } = self.schedule;
        let mut hashes = ValueHashes { rank: self.schedule.rank, of: BTreeMap::new() };
        for input in locals.iter().filter(|local| local.is_input) {
            hashes.take(&input.name, input.slice, arena);
        }
        for (instr, of) in self.instrs.iter().zip(&self.schedule.instructions) {
            self.step::<K, X, E>(instr, kernels, exchanges, arena)?;
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
    /// Whether ranks had the same where types say so, of the [hashes](Prepared::run_hashed) of its ranks; how many pairs were compared.
    ///
    /// ```
    /// use reshard_program::{Program, schedule::Hashes};
    /// let program: Program = "mesh tp=2\nx: f32[4] I\ny = exp(x)".parse()?;
    /// let hashes = |text: &str| text.parse::<Hashes>();
    /// let first = hashes("rank 0\nx 0000000000000001\ny 0000000000000002")?;
    /// let same = hashes("rank 1\nx 0000000000000001\ny 0000000000000002")?;
    /// assert_eq!(program.replicas(&[first.clone(), same])?, 2);
    /// let other = hashes("rank 1\nx 0000000000000001\ny 0000000000000003")?;
    /// assert!(program.replicas(&[first, other]).unwrap_err().to_string().starts_with(
    ///     "y is the same over tp by its type, and ranks 0 and 1 do not have the same of it"
    /// ));
    /// # Ok::<(), reshard_program::Error>(())
    /// ```
    ///
    /// Fails with `replicas` for the first value of which two ranks have different bytes, with its name, the axis and the ranks.
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

/// Along every axis of which a type says that ranks have the same: the first rank of these, if this is another.
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
            "{} is the same over {} by its type, and ranks {first} and {rank} do not have the same of it: what makes it differs from rank to rank, like a random number that no key gives, or an input given differently",
            value.name,
            value.ty.value.mesh().axes()[axis].name()
        ),
    }
}
