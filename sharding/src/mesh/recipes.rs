//! Recipes: the meshes of the usual parallel training strategies, and the roles of their axes.
//!
//! A recipe is a name and a degree per axis. Its dense mesh is row-major over the axes in the order below,
//! the last one fastest, so that the axes that communicate most have neighbouring ranks:
//!
//! ```text
//! pp, dp_replicate, dp_shard, cp, tp            world = the product of the degrees
//! ```
//!
//! Expert parallelism has a second, sparse view of the same ranks, in which experts are spread:
//!
//! ```text
//! pp, dp_replicate, efsdp, ep, etp              efsdp = dp_shard * cp * tp / (ep * etp)
//! ```

use core::fmt;
use reshard_layout::InlineVec;
use std::str::FromStr;

use smallvec::SmallVec;

use crate::notation::cursor::Cursor;
use crate::{Error, Mesh};

/// A parallel training strategy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Parallelism {
    /// Copies of the model, each on its part of the batch.
    DataParallel,
    /// Data parallel, with parameters, gradients and optimizer state sharded over the same ranks.
    Fsdp,
    /// Fully sharded within `dp_shard`, copies over `dp_replicate`.
    Hsdp,
    /// Weights of a layer split over `tp`; activations between blocks are copies.
    TensorParallel,
    /// Tensor parallel, with activations between blocks sharded over `tp` along the sequence.
    SequenceParallel,
    /// Sequence sharded over `sp`, exchanged for heads around attention.
    Ulysses,
    /// Sequence sharded over `cp`, keys and values passed around.
    ContextParallel,
    /// Layers in stages over `pp`.
    Pipeline,
    /// Experts spread over `ep` in a sparse view of the ranks of a dense mesh.
    ExpertParallel,
}

/// The role of a set of axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// They shard the batch: every coordinate reads other samples.
    Batch,
    /// They shard the sequence of every sample.
    Sequence,
    /// They shard the parameters outside the experts.
    Parameters,
    /// They hold other layers.
    Stages,
    /// They reduce the gradients of the parameters outside the experts.
    Gradients,
    /// They reduce the gradients of parameters that are copies along tensor parallel ranks, such as norms.
    NormGradients,
    /// They reduce the loss.
    Loss,
    /// Axes of the sparse mesh that shard the parameters of experts.
    ExpertParameters,
    /// Axes of the sparse mesh that reduce the gradients of experts.
    ExpertGradients,
}

/// A recipe with its degrees, checked (see the [module](self)).
///
/// ```
/// use reshard_sharding::recipes::{Recipe, Role};
/// let recipe: Recipe = "ep:dp_shard=2,cp=2,tp=2,ep=4".parse()?;
/// assert_eq!(recipe.mesh().to_string(), "pp=1,dp_replicate=1,dp_shard=2,cp=2,tp=2");
/// assert_eq!(recipe.sparse().unwrap().to_string(), "pp=1,dp_replicate=1,efsdp=2,ep=4,etp=1");
/// assert_eq!(recipe.axes(Role::Batch).as_slice(), ["dp_replicate", "dp_shard"]);
/// # Ok::<(), reshard_sharding::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recipe {
    kind: Parallelism,
    degrees: SmallVec<[(&'static str, usize); 8]>,
    mesh: Mesh,
    sparse: Option<Mesh>,
}

impl Parallelism {
    /// All of them.
    #[doc(hidden)]
    pub const ALL: [Parallelism; 9] = [
        Parallelism::DataParallel,
        Parallelism::Fsdp,
        Parallelism::Hsdp,
        Parallelism::TensorParallel,
        Parallelism::SequenceParallel,
        Parallelism::Ulysses,
        Parallelism::ContextParallel,
        Parallelism::Pipeline,
        Parallelism::ExpertParallel,
    ];

    /// Returns the short name: `dp`, `fsdp`, `hsdp`, `tp`, `sp`, `ulysses`, `cp`, `pp` or `ep`.
    #[doc(hidden)]
    pub fn as_str(self) -> &'static str {
        match self {
            Parallelism::DataParallel => "dp",
            Parallelism::Fsdp => "fsdp",
            Parallelism::Hsdp => "hsdp",
            Parallelism::TensorParallel => "tp",
            Parallelism::SequenceParallel => "sp",
            Parallelism::Ulysses => "ulysses",
            Parallelism::ContextParallel => "cp",
            Parallelism::Pipeline => "pp",
            Parallelism::ExpertParallel => "ep",
        }
    }

    /// Returns a one-line description.
    #[doc(hidden)]
    pub fn about(self) -> &'static str {
        match self {
            Parallelism::DataParallel => "data parallel: copies of the model, each on its part of the batch",
            Parallelism::Fsdp => {
                "fully sharded data parallel: parameters sharded over the ranks that share the batch"
            }
            Parallelism::Hsdp => "hybrid: fully sharded within dp_shard, copies over dp_replicate",
            Parallelism::TensorParallel => "tensor parallel: the weights of a layer split over tp",
            Parallelism::SequenceParallel => {
                "tensor parallel, activations between blocks split along the sequence over tp"
            }
            Parallelism::Ulysses => "sequence split over sp, exchanged for heads around attention",
            Parallelism::ContextParallel => "sequence split over cp, keys and values passed around",
            Parallelism::Pipeline => "layers in stages over pp",
            Parallelism::ExpertParallel => "experts spread over ep, a sparse view of the dense ranks",
        }
    }

    /// Returns the axes of the dense mesh, outermost first.
    #[doc(hidden)]
    pub fn dense_axes(self) -> &'static [&'static str] {
        match self {
            Parallelism::DataParallel => &["dp"],
            Parallelism::Fsdp => &["dp_shard"],
            Parallelism::Hsdp => &["dp_replicate", "dp_shard"],
            Parallelism::TensorParallel | Parallelism::SequenceParallel => {
                &["dp_replicate", "dp_shard", "tp"]
            }
            Parallelism::Ulysses => &["dp_replicate", "dp_shard", "sp"],
            Parallelism::ContextParallel => &["dp_replicate", "dp_shard", "cp", "tp"],
            Parallelism::Pipeline | Parallelism::ExpertParallel => {
                &["pp", "dp_replicate", "dp_shard", "cp", "tp"]
            }
        }
    }

    /// Returns the degrees that only the sparse mesh has.
    #[doc(hidden)]
    pub fn sparse_axes(self) -> &'static [&'static str] {
        match self {
            Parallelism::ExpertParallel => &["ep", "etp"],
            Parallelism::DataParallel
            | Parallelism::Fsdp
            | Parallelism::Hsdp
            | Parallelism::TensorParallel
            | Parallelism::SequenceParallel
            | Parallelism::Ulysses
            | Parallelism::ContextParallel
            | Parallelism::Pipeline => &[],
        }
    }
}

impl Role {
    /// All of them.
    #[doc(hidden)]
    pub const ALL: [Role; 9] = [
        Role::Batch,
        Role::Sequence,
        Role::Parameters,
        Role::Stages,
        Role::Gradients,
        Role::NormGradients,
        Role::Loss,
        Role::ExpertParameters,
        Role::ExpertGradients,
    ];

    /// Returns the name, in snake case.
    #[doc(hidden)]
    pub fn as_str(self) -> &'static str {
        match self {
            Role::Batch => "batch",
            Role::Sequence => "sequence",
            Role::Parameters => "parameters",
            Role::Stages => "stages",
            Role::Gradients => "gradients",
            Role::NormGradients => "norm_gradients",
            Role::Loss => "loss",
            Role::ExpertParameters => "expert_parameters",
            Role::ExpertGradients => "expert_gradients",
        }
    }

    /// Returns the axes that may have this role in a recipe; those that its meshes do not have fall away.
    fn candidates(self, kind: Parallelism) -> &'static [&'static str] {
        let sequence_parallel = kind == Parallelism::SequenceParallel;
        match self {
            Role::Batch => &["dp", "dp_replicate", "dp_shard"],
            Role::Sequence if sequence_parallel => &["tp"],
            Role::Sequence => &["cp", "sp"],
            Role::Parameters => &["dp_shard", "cp", "sp", "tp"],
            Role::Stages => &["pp"],
            Role::NormGradients if sequence_parallel => &["dp_replicate", "dp_shard", "tp"],
            Role::Gradients | Role::NormGradients | Role::Loss => {
                &["dp", "dp_replicate", "dp_shard", "cp", "sp"]
            }
            Role::ExpertParameters => &["efsdp", "ep", "etp"],
            Role::ExpertGradients => &["dp_replicate", "efsdp"],
        }
    }
}

impl Recipe {
    /// Returns the recipe with these degrees; axes not named have degree 1.
    ///
    /// Fails with `mesh` for an axis that the recipe does not have, a degree of 0, or expert degrees whose
    /// product does not divide that of the ranks they are spread over, and with `overflow`.
    pub fn new(kind: Parallelism, degrees: &[(&str, usize)]) -> Result<Recipe, Error> {
        let known = || kind.dense_axes().iter().chain(kind.sparse_axes()).copied();
        let mut all: SmallVec<[(&'static str, usize); 8]> = known().map(|name| (name, 1)).collect();
        let mut seen: SmallVec<[&str; 8]> = SmallVec::new();
        for &(name, n) in degrees {
            let Some(slot) = all.iter_mut().find(|d| d.0 == name) else {
                let names: Vec<&str> = known().collect();
                return Err(Error::Mesh {
                    reason: format!("{} has no axis {name}: it has {}", kind.as_str(), names.join(", ")),
                });
            };
            if n == 0 || seen.contains(&name) {
                return Err(Error::Mesh {
                    reason: format!("{name}={n} in {}: give each degree once, at least 1", kind.as_str()),
                });
            }
            seen.push(name);
            slot.1 = n;
        }
        let dense = kind.dense_axes().len();
        let mesh = Mesh::new(all[..dense].iter().copied())?;
        let sparse = if kind.sparse_axes().is_empty() { None } else { Some(sparse_view(&mesh, &all)?) };
        Ok(Recipe { kind, degrees: all, mesh, sparse })
    }

    /// Returns the same recipe, if its degrees multiply to this number of ranks.
    ///
    /// ```
    /// use reshard_sharding::recipes::Recipe;
    /// let e = "hsdp:dp_replicate=2,dp_shard=3".parse::<Recipe>()?.on_world(8).unwrap_err();
    /// assert_eq!(e.to_string(), "dp_replicate * dp_shard = 2 * 3 = 6, but there are 8 ranks: change a degree");
    /// # Ok::<(), reshard_sharding::Error>(())
    /// ```
    pub fn on_world(self, ranks: usize) -> Result<Recipe, Error> {
        if self.mesh.size() == ranks {
            return Ok(self);
        }
        let dense = &self.degrees[..self.kind.dense_axes().len()];
        Err(Error::Mesh {
            reason: format!(
                "{} = {}, but there are {ranks} ranks: change a degree",
                product_text(dense),
                self.mesh.size()
            ),
        })
    }

    /// Returns the strategy of the recipe.
    #[doc(hidden)]
    pub fn kind(&self) -> Parallelism {
        self.kind
    }

    /// Returns the dense mesh.
    pub fn mesh(&self) -> &Mesh {
        &self.mesh
    }

    /// Returns the sparse view of the same ranks, for expert parallelism.
    pub fn sparse(&self) -> Option<&Mesh> {
        self.sparse.as_ref()
    }

    /// Returns the axes that have a role, outermost first; those of the experts are axes of the sparse mesh.
    pub fn axes(&self, role: Role) -> InlineVec<&'static str, 6> {
        let mesh = match role {
            Role::ExpertParameters | Role::ExpertGradients => self.sparse.as_ref(),
            Role::Batch
            | Role::Sequence
            | Role::Parameters
            | Role::Stages
            | Role::Gradients
            | Role::NormGradients
            | Role::Loss => Some(&self.mesh),
        };
        let has = |name: &str| mesh.is_some_and(|m| m.axes().iter().any(|a| a.name().as_str() == name));
        role.candidates(self.kind).iter().copied().filter(|name| has(name)).collect()
    }
}

/// Returns the dense ranks of a stage and a copy, spread over `efsdp`, `ep` and `etp`.
fn sparse_view(mesh: &Mesh, degrees: &[(&'static str, usize)]) -> Result<Mesh, Error> {
    let degree = |name: &str| degrees.iter().find(|d| d.0 == name).map_or(1, |d| d.1);
    // The dense mesh fits, and so does a part of it.
    let spread = degree("dp_shard") * degree("cp") * degree("tp");
    let experts = degree("ep").checked_mul(degree("etp"));
    let Some(experts) = experts.filter(|e| spread.is_multiple_of(*e)) else {
        let named = |names: &[&str]| -> SmallVec<[(&'static str, usize); 8]> {
            degrees.iter().copied().filter(|d| names.contains(&d.0)).collect()
        };
        return Err(Error::Mesh {
            reason: format!(
                "{} = {} does not divide {} = {spread}: experts are spread over those ranks",
                product_text(&named(&["ep", "etp"])),
                experts.map_or_else(|| "more than fits".to_owned(), |e| e.to_string()),
                product_text(&named(&["dp_shard", "cp", "tp"])),
            ),
        });
    };
    mesh.reinterpret(&[
        ("pp", degree("pp")),
        ("dp_replicate", degree("dp_replicate")),
        ("efsdp", spread / experts),
        ("ep", degree("ep")),
        ("etp", degree("etp")),
    ])
}

/// `a * b = 2 * 3`.
fn product_text(degrees: &[(&'static str, usize)]) -> String {
    let names: Vec<&str> = degrees.iter().map(|d| d.0).collect();
    let sizes: Vec<String> = degrees.iter().map(|d| d.1.to_string()).collect();
    format!("{} = {}", names.join(" * "), sizes.join(" * "))
}

impl fmt::Display for Parallelism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Parallelism {
    type Err = Error;

    fn from_str(text: &str) -> Result<Parallelism, Error> {
        Parallelism::ALL.into_iter().find(|k| k.as_str() == text.trim()).ok_or_else(|| {
            let names: Vec<&str> = Parallelism::ALL.iter().map(|k| k.as_str()).collect();
            Cursor::new("recipe", text).error_at(0, format!("one of {}", names.join(", ")))
        })
    }
}

impl fmt::Display for Recipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.kind)?;
        let named = self.degrees.iter().filter(|d| d.1 > 1);
        for (i, (name, n)) in named.enumerate() {
            write!(f, "{}{name}={n}", if i == 0 { ':' } else { ',' })?;
        }
        Ok(())
    }
}

impl FromStr for Recipe {
    type Err = Error;

    fn from_str(text: &str) -> Result<Recipe, Error> {
        let mut r = Cursor::new("recipe", text);
        let kind: Parallelism = r.take_while(|c| c.is_ascii_alphanumeric() || c == '_').parse()?;
        let mut degrees: Vec<(&str, usize)> = Vec::new();
        if r.eat(":") {
            loop {
                let at = r.here();
                let name = r.take_while(|c| c.is_ascii_alphanumeric() || c == '_');
                if name.is_empty() {
                    return Err(r.error_at(at, "an axis and its degree, as in dp_shard=8"));
                }
                r.expect("=")?;
                degrees.push((name, r.number("a degree")?));
                if !r.eat(",") {
                    break;
                }
            }
        }
        r.finish()?;
        Recipe::new(kind, &degrees)
    }
}
