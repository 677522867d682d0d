//! The meshes of one world: the first has all its ranks, others are over ranks of it and have names.
//!
//! ```text
//! mesh pp=2,tp=2                     the world, ranks 0 to 3: called `default`, and meant where no mesh is named
//! mesh first: tp=2                   ranks 0 and 1
//! mesh second: tp=2@2                ranks 2 and 3
//! mesh ring: x=4@[0,1,3,2]           all of them in another order
//! ```
//!
//! A rank is the same process in every mesh. A type knows its mesh, and is written with its name, `S(0) on second`. Meshes of the
//! same axes and ranks are one mesh, whose name is the first of theirs.

use reshard_sharding::{Mesh, Sharding, ShardingType};

use crate::Error;
use crate::graph::{Graph, GraphStatement, ValueId};

/// The name of the first mesh, which is not written.
const FIRST: &str = "default";

/// The most meshes of a program.
const MOST: usize = 64;

/// The most ranks of a world that has several: ranks are told apart by the meshes that they are in.
const MOST_RANKS: usize = 1 << 20;

/// The meshes of a program by name; see [`Graph::add_mesh`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meshes {
    /// The first is the world.
    list: Vec<(String, Mesh)>,
}

impl Meshes {
    /// Those of a program that has only one.
    pub(crate) fn new(first: &Mesh) -> Meshes {
        Meshes { list: vec![(FIRST.to_owned(), first.clone())] }
    }

    /// The first, of all ranks.
    pub fn first(&self) -> &Mesh {
        &self.list[0].1
    }

    /// All, by name: the first is called `default`.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Mesh)> {
        self.list.iter().map(|(name, mesh)| (name.as_str(), mesh))
    }

    /// Those after the first, by name.
    pub fn named(&self) -> impl Iterator<Item = (&str, &Mesh)> {
        self.iter().skip(1)
    }

    /// The mesh of a name.
    ///
    /// Fails where there is none.
    pub fn get(&self, name: &str) -> Result<&Mesh, Error> {
        self.iter().find(|(known, _)| *known == name).map(|(_, mesh)| mesh).ok_or_else(|| Error::Graph {
            reason: format!(
                "there is no mesh {name}: the program has {}; a line like mesh {name}: ep=4 before makes one",
                self.names().join(", ")
            ),
        })
    }

    /// The name of a mesh, if it is one of these.
    pub fn name(&self, mesh: &Mesh) -> Option<&str> {
        self.iter().find(|(_, known)| *known == mesh).map(|(name, _)| name)
    }

    /// A type with its mesh as a program says it: `S(0),R` of the first, and `S(0),R on experts` of another.
    pub fn type_text(&self, is: &ShardingType) -> String {
        format!("{is}{}", self.on(is.value.mesh()))
    }

    /// The same of a sharding.
    pub fn written_value(&self, value: &Sharding) -> String {
        format!("{value}{}", self.on(value.mesh()))
    }

    /// Adds a mesh.
    ///
    /// Fails for a name that is none or taken, and for ranks that are not of the world.
    pub(crate) fn add(&mut self, name: &str, mesh: &Mesh) -> Result<(), Error> {
        let refused = |reason: String| Err(Error::Graph { reason });
        if !is_name(name) {
            return refused(format!(
                "{name:?} is no name of a mesh: letters, digits and _, as in mesh experts: ep=4"
            ));
        }
        if name == FIRST {
            return refused(format!(
                "{FIRST} is what the first mesh is called: give mesh {mesh} another name"
            ));
        }
        if self.iter().any(|(known, _)| known == name) {
            return refused(format!("there are two meshes {name}: give one of them another name"));
        }
        if self.list.len() >= MOST {
            return refused(format!("a program has at most {MOST} meshes"));
        }
        let world = self.first();
        if world.size() > MOST_RANKS {
            return refused(format!(
                "a program of several meshes has at most {MOST_RANKS} ranks, and {world} has {}",
                world.size()
            ));
        }
        // Ranks of a mesh differ, so that of more than the world has some are not in it.
        let outside = mesh.ranks().take(MOST_RANKS + 1).find(|&rank| !world.contains(rank));
        if let Some(rank) = outside {
            return refused(format!(
                "mesh {name}: {mesh} has rank {rank}, which is not in the first mesh {world}: the first has all ranks of the program"
            ));
        }
        self.list.push((name.to_owned(), mesh.clone()));
        Ok(())
    }

    /// The number of a mesh, if it is one of these.
    pub(crate) fn number(&self, mesh: &Mesh) -> Option<usize> {
        self.list.iter().position(|(_, known)| known == mesh)
    }

    /// The mesh of a number.
    pub(crate) fn at(&self, number: usize) -> &Mesh {
        &self.list[number].1
    }

    /// ` on experts`, and nothing of the first.
    fn on(&self, mesh: &Mesh) -> String {
        match self.name(mesh) {
            Some(FIRST) => String::new(),
            Some(name) => format!(" on {name}"),
            None => format!(" on {mesh}"),
        }
    }

    /// All names, with their meshes.
    pub(crate) fn names(&self) -> Vec<String> {
        self.iter().map(|(name, mesh)| format!("{name} ({mesh})")).collect()
    }

    /// Which meshes a rank is in, a bit for each.
    pub(crate) fn class(&self, rank: usize) -> u64 {
        let bits = self.iter().enumerate().filter(|(_, (_, mesh))| mesh.contains(rank));
        bits.fold(0u64, |class, (bit, _)| class | 1 << bit)
    }

    /// Which meshes each rank is in, a bit for each: every combination that there is once.
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
    /// All meshes.
    pub fn meshes(&self) -> &Meshes {
        &self.meshes
    }

    /// Adds a mesh over ranks of the first, on which values can be.
    ///
    /// ```
    /// use reshard_kernels::DType;
    /// use reshard_program::Graph;
    /// let mut graph = Graph::new(&"dp=2,tp=2".parse()?);
    /// graph.add_mesh("experts", &"ep=4".parse()?)?;
    /// let w = graph.input("w", DType::F32, &[8, 16], "S(0) on experts")?;
    /// assert_eq!(graph.pinned(w).map(|is| is.value.mesh().to_string()).as_deref(), Some("ep=4"));
    /// assert_eq!(graph.to_string(), "mesh dp=2,tp=2\nmesh experts: ep=4\nw: f32[8,16] S(0) on experts\n");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// Fails for a name that is none or taken, `default` among them, for ranks that the first mesh has not, for more than 64
    /// meshes, and for a first mesh of more than 2^20 ranks.
    pub fn add_mesh(&mut self, name: &str, mesh: &Mesh) -> Result<(), Error> {
        self.meshes.add(name, mesh)
    }

    /// A type of a value, by its text.
    pub(crate) fn type_of(&self, name: &str, shape: &[usize], text: &str) -> Result<ShardingType, Error> {
        let (mesh, text) = self.mesh_of(name, text)?;
        ShardingType::parse(mesh, shape, text).map_err(|e| Error::of(name, e))
    }

    /// A sharding of a value without a gradient, by its text.
    pub(crate) fn sharding_of(&self, name: &str, shape: &[usize], text: &str) -> Result<ShardingType, Error> {
        let (mesh, text) = self.mesh_of(name, text)?;
        let value = Sharding::parse(mesh, shape, text).map_err(|e| Error::of(name, e))?;
        Ok(ShardingType { value, gradient: None })
    }

    /// The mesh that a text names, and the rest.
    fn mesh_of<'a>(&self, name: &str, text: &'a str) -> Result<(&Mesh, &'a str), Error> {
        let (is, on) = apart(text);
        match on {
            None => Ok((self.mesh(), is)),
            Some(on) if is.is_empty() => Err(Error::Graph {
                reason: format!(
                    "{name} is on {on} and has no type: say how it is sharded, like S(0),R on {on}"
                ),
            }),
            Some(on) => {
                let named = |e: Error| Error::Graph { reason: format!("{name}: {e}") };
                Ok((self.meshes.get(on).map_err(named)?, is))
            }
        }
    }

    /// Of each value the number of the mesh on which it is made.
    ///
    /// ```text
    /// an op runs on    the mesh of the first result whose type is said, else of its first operand, else the first mesh
    /// ```
    pub(crate) fn made_on(&self) -> Vec<usize> {
        let said = |v: ValueId| self.constraint(v).and_then(|is| self.meshes.number(is.value.mesh()));
        let mut made: Vec<usize> = self.values.iter().map(|known| known.on.unwrap_or(0)).collect();
        for statement in &self.statements {
            // What is said of a result it becomes after it is made.
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

/// Whether a word is a name of a mesh.
fn is_name(word: &str) -> bool {
    !word.is_empty()
        && !word.starts_with(|c: char| c.is_ascii_digit())
        && word.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// `S(0),R on experts` as type and name of the mesh.
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
