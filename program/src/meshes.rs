//! The meshes of one world: the first has all its ranks, the others have names and a subset of its ranks.
//!
//! ```text
//! mesh pp=2,tp=2                     the world, ranks 0 to 3; named `default`, and used where no mesh is named
//! mesh first: tp=2                   ranks 0 and 1
//! mesh second: tp=2@2                ranks 2 and 3
//! mesh ring: x=4@[0,1,3,2]           all of them in another order
//! ```
//!
//! A rank is the same process in every mesh. A type includes its mesh, and is written with the mesh name,
//! `S(0) on second`. Meshes with the same axes and ranks are one mesh, which has the first of their names.

use std::sync::Arc;

use reshard_sharding::internal::OneRank;
use reshard_sharding::{Mesh, Sharding, ShardingType};

use crate::Error;
use crate::graph::{Graph, GraphStatement, ValueId};

/// The name of the first mesh, which texts omit.
const FIRST: &str = "default";

/// The maximum number of meshes of a program.
const MOST: usize = 64;

/// The maximum number of ranks of a world with several meshes; ranks are classified by their meshes.
const MOST_RANKS: usize = 1 << 20;

/// The meshes of a program by name; see [`Graph::add_mesh`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[doc(hidden)]
pub struct Meshes {
    /// The named meshes; the first is the world.
    list: Vec<(String, Mesh)>,
    /// The axes of one rank along which types stay as written.
    one_rank: Option<Arc<OneRank>>,
}

impl Meshes {
    /// Returns the meshes of a program with a single mesh.
    pub(crate) fn new(first: &Mesh) -> Meshes {
        Meshes { list: vec![(FIRST.to_owned(), first.clone())], one_rank: OneRank::of(first).map(Arc::new) }
    }

    /// Returns the axes of one rank along which types stay as written, if there are some.
    pub(crate) fn one_rank(&self) -> Option<&Arc<OneRank>> {
        self.one_rank.as_ref()
    }

    /// Keeps no types along axes of one rank from here on.
    pub(crate) fn forget_one_rank(&mut self) {
        self.one_rank = None;
    }

    /// Returns the first mesh, which has all ranks.
    pub fn first(&self) -> &Mesh {
        &self.list[0].1
    }

    /// Returns all meshes with their names; the first is named `default`.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Mesh)> {
        self.list.iter().map(|(name, mesh)| (name.as_str(), mesh))
    }

    /// Returns the meshes after the first, with their names.
    pub fn named(&self) -> impl Iterator<Item = (&str, &Mesh)> {
        self.iter().skip(1)
    }

    /// Returns the mesh with a name.
    ///
    /// Returns an error if there is none.
    pub fn get(&self, name: &str) -> Result<&Mesh, Error> {
        self.iter().find(|(known, _)| *known == name).map(|(_, mesh)| mesh).ok_or_else(|| Error::Graph {
            reason: format!(
                "unknown mesh `{name}`; the program has {}; declare it above, as in `mesh {name}: ep=4`",
                self.names().join(", ")
            ),
        })
    }

    /// Returns the name of a mesh, if it is one of these.
    pub fn name(&self, mesh: &Mesh) -> Option<&str> {
        self.iter().find(|(_, known)| *known == mesh).map(|(name, _)| name)
    }

    /// Formats a type with its mesh: `S(0),R` on the first mesh, `S(0),R on experts` on another.
    pub fn type_text(&self, is: &ShardingType) -> String {
        format!("{is}{}", self.on(is.value.mesh()))
    }

    /// Formats a sharding with its mesh.
    pub(crate) fn written_value(&self, value: &Sharding) -> String {
        format!("{value}{}", self.on(value.mesh()))
    }

    /// Adds a mesh.
    ///
    /// Returns an error for an invalid or used name, and for ranks outside the world.
    pub(crate) fn add(&mut self, name: &str, mesh: &Mesh) -> Result<(), Error> {
        let refused = |reason: String| Err(Error::Graph { reason });
        if !is_name(name) {
            return refused(format!(
                "invalid mesh name {name:?}; use letters, digits and `_`, and begin with a letter, as in `mesh experts: ep=4`"
            ));
        }
        if name == FIRST {
            return refused(format!(
                "`{FIRST}` is the name of the first mesh; give mesh {mesh} another name"
            ));
        }
        if self.iter().any(|(known, _)| known == name) {
            return refused(format!("two meshes are named `{name}`; rename one of them"));
        }
        if self.list.len() >= MOST {
            return refused(format!("a program has at most {MOST} meshes"));
        }
        let world = self.first();
        if world.size() > MOST_RANKS {
            return refused(format!(
                "a program with several meshes has at most {MOST_RANKS} ranks, but {world} has {}",
                world.size()
            ));
        }
        // The ranks of a mesh are distinct, so a mesh larger than the world has some outside it.
        let outside = mesh.ranks().take(MOST_RANKS + 1).find(|&rank| !world.contains(rank));
        if let Some(rank) = outside {
            return refused(format!(
                "mesh {name}: {mesh} has rank {rank}, which is not in the first mesh {world}; the first mesh must have all ranks of the program"
            ));
        }
        self.list.push((name.to_owned(), mesh.clone()));
        self.forget_one_rank();
        Ok(())
    }

    /// Returns the number of a mesh, if it is one of these.
    pub(crate) fn number(&self, mesh: &Mesh) -> Option<usize> {
        self.list.iter().position(|(_, known)| known == mesh)
    }

    /// Returns the mesh with a number.
    pub(crate) fn at(&self, number: usize) -> &Mesh {
        &self.list[number].1
    }

    /// Formats the mesh suffix of a type: ` on experts`, and nothing for the first mesh.
    fn on(&self, mesh: &Mesh) -> String {
        match self.name(mesh) {
            Some(FIRST) => String::new(),
            Some(name) => format!(" on {name}"),
            None => format!(" on {mesh}"),
        }
    }

    /// Returns all names, with their meshes.
    pub(crate) fn names(&self) -> Vec<String> {
        self.iter().map(|(name, mesh)| format!("{name} ({mesh})")).collect()
    }

    /// Returns the meshes that contain a rank, as a bit mask.
    pub(crate) fn class(&self, rank: usize) -> u64 {
        let bits = self.iter().enumerate().filter(|(_, (_, mesh))| mesh.contains(rank));
        bits.fold(0u64, |class, (bit, _)| class | 1 << bit)
    }

    /// Returns the distinct combinations of meshes that contain a rank, as bit masks.
    pub(crate) fn classes(&self) -> Vec<u64> {
        if self.list.len() == 1 {
            return vec![1];
        }
        let mut classes: Vec<u64> = self.first().ranks().map(|rank| self.class(rank)).collect();
        classes.sort_unstable();
        classes.dedup();
        classes
    }
}

impl Graph {
    /// Returns all meshes.
    #[doc(hidden)]
    pub fn meshes(&self) -> &Meshes {
        &self.meshes
    }

    /// Adds a mesh over ranks of the first, for values to be on.
    ///
    /// ```
    /// use reshard_kernels::DType;
    /// use reshard_program::Graph;
    /// let mut graph = Graph::new(&"dp=2,tp=2".parse()?);
    /// graph.add_mesh("experts", &"ep=4".parse()?)?;
    /// graph.input("w", DType::F32, &[8, 16], "S(0) on experts")?;
    /// assert_eq!(graph.to_string(), "mesh dp=2,tp=2\nmesh experts: ep=4\nw: f32[8,16] S(0) on experts\n");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// Returns an error for an invalid or used name (`default` is used), for ranks that are not in the first
    /// mesh, for more than 64 meshes, and for a first mesh of more than 2^20 ranks.
    pub fn add_mesh(&mut self, name: &str, mesh: &Mesh) -> Result<(), Error> {
        self.meshes.add(name, mesh)
    }

    /// Parses a type of a value.
    pub(crate) fn type_of(&self, name: &str, shape: &[usize], text: &str) -> Result<ShardingType, Error> {
        let (mesh, text) = self.mesh_of(name, text)?;
        ShardingType::parse(mesh, shape, text).map_err(|e| Error::of(name, e))
    }

    /// Parses a sharding of a value without a gradient.
    pub(crate) fn sharding_of(&self, name: &str, shape: &[usize], text: &str) -> Result<ShardingType, Error> {
        let (mesh, text) = self.mesh_of(name, text)?;
        let value = Sharding::parse(mesh, shape, text).map_err(|e| Error::of(name, e))?;
        ShardingType::new(value, None).written(text).map_err(|e| Error::of(name, e))
    }

    /// Splits a text into the mesh that it names, and the rest.
    fn mesh_of<'a>(&self, name: &str, text: &'a str) -> Result<(&Mesh, &'a str), Error> {
        let (is, on) = apart(text);
        match on {
            None => Ok((self.mesh(), is)),
            Some(on) if is.is_empty() => Err(Error::Graph {
                reason: format!(
                    "`{name}` is on {on} but has no type; write its sharding, such as `S(0),R on {on}`"
                ),
            }),
            Some(on) => {
                let named = |e: Error| Error::Graph { reason: format!("{name}: {e}") };
                Ok((self.meshes.get(on).map_err(named)?, is))
            }
        }
    }

    /// Returns, for each value, the number of the mesh on which it is computed.
    ///
    /// ```text
    /// mesh of an op    of the first result with a declared type, else of the first operand, else the first mesh
    /// ```
    pub(crate) fn made_on(&self) -> Vec<usize> {
        let said = |v: ValueId| self.constraint(v).and_then(|is| self.meshes.number(is.value.mesh()));
        let mut made: Vec<usize> = self.values.iter().map(|known| known.on.unwrap_or(0)).collect();
        for statement in &self.statements {
            // A result is redistributed to its constraint after it is computed.
            let lies = |v: ValueId| said(v).unwrap_or(made[v.0]);
            let on: Vec<usize> = match statement {
                GraphStatement::NoGrad => Vec::new(),
                GraphStatement::Input(v) | GraphStatement::Move { to: v, .. } => vec![lies(*v)],
                GraphStatement::Gradient { wrt, .. } => wrt.iter().map(|v| lies(*v)).collect(),
                GraphStatement::Op { inputs, outputs, .. } => {
                    let known = outputs.first().and_then(|v| self.values[v.0].on);
                    let on = (known.or_else(|| outputs.iter().find_map(|v| said(*v))))
                        .or_else(|| inputs.first().map(|v| lies(*v)));
                    vec![on.unwrap_or(0); outputs.len()]
                }
            };
            for (v, on) in statement.makes().iter().zip(on) {
                made[v.0] = on;
            }
        }
        made
    }
}

/// Returns `true` for a valid mesh name.
fn is_name(word: &str) -> bool {
    !word.is_empty()
        && !word.starts_with(|c: char| c.is_ascii_digit())
        && word.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// Splits `S(0),R on experts` into the type and the mesh name.
fn apart(text: &str) -> (&str, Option<&str>) {
    let text = text.trim();
    match text.rsplit_once(char::is_whitespace) {
        Some((rest, name)) if is_name(name) => match rest.trim_end().strip_suffix("on") {
            Some(is) if is.is_empty() || is.ends_with(char::is_whitespace) => (is.trim_end(), Some(name)),
            Some(_) | None => (text, None),
        },
        Some(_) | None => (text, None),
    }
}
