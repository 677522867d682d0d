//! The source and target sharding of every tensor.
//!
//! `--to` is given once for a whole checkpoint, and a checkpoint holds matrices, vectors and scalars. So it
//! applies to the tensors that have all dims that it names; other tensors are replicated, and the report
//! gives the reason. A request for particular tensors (`--tensor`, `--spec`) is not lenient, and neither is
//! one whose dims no tensor has.

use std::sync::Arc;

use reshard_sharding::{Mesh, Sharding};

use crate::error::Error;
use crate::job::Replicas;
use crate::job::wish::Wish;
use crate::model::by_part::ByPart;
use crate::model::checkpoint::{Checkpoint, Data, Origin, Tensor};
use crate::model::once::once;
use crate::model::placed::{Known, Placed};
use crate::model::units::Units;

/// The redistribution of one tensor.
pub(crate) struct Move<'a> {
    pub(crate) tensor: &'a Tensor,
    pub(crate) from: Sharding,
    /// The sharding in the files that are written; not used if there are `parts`.
    pub(crate) to: Sharding,
    /// The shardings of the parts that every rank concatenates.
    pub(crate) parts: Option<ByPart>,
    /// The requested sharding, if the ranks that hold the same data each write a part of it.
    pub(crate) wanted: Option<Sharding>,
    /// The reason why it is replicated although another sharding was requested.
    pub(crate) replicated: Option<String>,
    /// The same two shardings in units, as the exchange uses them.
    pub(crate) units: Units,
    pub(crate) unit_from: Sharding,
    pub(crate) unit_to: Sharding,
}

impl Move<'_> {
    /// Returns the requested placements, as the user writes them.
    pub(crate) fn wanted(&self) -> String {
        match &self.parts {
            Some(parts) => parts.to_string(),
            None => self.wanted.as_ref().unwrap_or(&self.to).to_string(),
        }
    }

    /// Returns the shape of the tensor in the file of a rank.
    pub(crate) fn local_shape(&self, rank: usize) -> Result<Vec<usize>, Error> {
        match &self.parts {
            Some(parts) => parts.local_shape(rank),
            None => Ok(self.to.local_shape(rank)?.to_vec()),
        }
    }

    /// Returns the distinct regions of the files, in units, with the positions of the ranks that hold them.
    pub(crate) fn placed(&self, known: &mut Known) -> Result<Arc<Placed>, Error> {
        match &self.parts {
            Some(parts) => Ok(Arc::new(parts.placed_on_ranks()?)),
            None => known.placed(&self.unit_to),
        }
    }
}

/// Returns an error if a tensor has placements by part, which engines do not write.
pub(crate) fn without_parts(moves: &[Move<'_>]) -> Result<(), Error> {
    match moves.iter().find(|one| one.parts.is_some()) {
        None => Ok(()),
        Some(one) => {
            let message = "each rank concatenates its parts, which works from files to files only; pass an input and `--out`, and drop `--engine`";
            Err(Error::unsupported("parts", message).about_tensor(&one.tensor.name))
        }
    }
}

/// Decides the shardings of every requested tensor, in the order of the checkpoint.
pub(crate) fn decide<'a>(checkpoint: &'a Checkpoint, wish: &Wish<'_>) -> Result<Vec<Move<'a>>, Error> {
    let mut fits = Fits::default();
    let mut moves = Vec::with_capacity(checkpoint.tensors.len());
    for tensor in &checkpoint.tensors {
        let decided = decide_one(tensor, checkpoint, wish, &mut fits);
        moves.push(decided.map_err(|error| error.about_tensor(&tensor.name))?);
    }
    if let Some(spec) = wish.spec {
        let tensors = checkpoint.tensors.iter().map(|tensor| &tensor.name[..]);
        spec.all_used(tensors.chain(checkpoint.unselected.iter().map(|name| &name[..])))?;
    }
    fits.check(wish)?;
    Ok(moves)
}

/// Records if any tensor had the dims of `--from` and `--to`, and the last reason why not.
#[derive(Default)]
struct Fits {
    from: Tally,
    to: Tally,
}

#[derive(Default)]
struct Tally {
    any: bool,
    reason: Option<String>,
}

impl Fits {
    fn check(&self, wish: &Wish<'_>) -> Result<(), Error> {
        for (tally, flag, text) in [(&self.from, "--from", &wish.from), (&self.to, "--to", &wish.to)] {
            if let (false, Some(reason), Some(text)) = (tally.any, &tally.reason, text) {
                let message = format!("no tensor has all the dims that {flag} {text} names: {reason}");
                return Err(Error::refused("no_such_dim", message));
            }
        }
        Ok(())
    }
}

fn decide_one<'a>(
    tensor: &'a Tensor,
    checkpoint: &Checkpoint,
    wish: &Wish<'_>,
    fits: &mut Fits,
) -> Result<Move<'a>, Error> {
    let units = Units::of(tensor.dtype, &tensor.shape);
    let from = source(tensor, checkpoint, wish, &mut fits.from)?;
    let unit_from = units.sharding(&from).map_err(|why| packed(tensor, &from, &why))?;
    let by_name = wish.spec.and_then(|spec| spec.placements(&tensor.name));
    let lenient = by_name.is_none();
    let text = by_name.or(wish.to.as_deref()).ok_or_else(|| {
        let message = "no pattern of the spec matches it and there is no `--to`; add a last pattern \"*\"";
        Error::refused("spec", message)
    })?;
    if let Some(parts) = by_part(tensor, wish, text, lenient, &mut fits.to)? {
        let to = Sharding::replicated(&wish.mesh, &tensor.shape)?;
        let unit_to = units.sharding(&to).map_err(|why| packed(tensor, &to, &why))?;
        let parts = Some(parts);
        let (wanted, replicated) = (None, None);
        return Ok(Move { tensor, from, to, parts, wanted, replicated, units, unit_from, unit_to });
    }
    let (mut to, mut replicated) = target(tensor, wish, text, lenient, &mut fits.to)?;
    let unit_to = match units.sharding(&to) {
        Ok(unit_to) => unit_to,
        Err(why) if lenient => {
            replicated = Some(packed(tensor, &to, &why).to_string());
            to = Sharding::replicated(&wish.mesh, &tensor.shape)?;
            units.sharding(&to).map_err(|why| packed(tensor, &to, &why))?
        }
        Err(why) => return Err(packed(tensor, &to, &why)),
    };
    let once = match wish.replicas {
        Replicas::Every => None,
        Replicas::Once => once(&to).and_then(|stored| Some((units.sharding(&stored).ok()?, stored))),
    };
    let Some((unit_stored, stored)) = once else {
        let (parts, wanted) = (None, None);
        return Ok(Move { tensor, from, to, parts, wanted, replicated, units, unit_from, unit_to });
    };
    Ok(Move {
        tensor,
        from,
        to: stored,
        parts: None,
        wanted: Some(to),
        replicated,
        units,
        unit_from,
        unit_to: unit_stored,
    })
}

fn packed(tensor: &Tensor, sharding: &Sharding, why: &str) -> Error {
    Error::refused("packed", format!("{} of {:?} cannot be `{sharding}`: {why}", tensor.dtype, tensor.shape))
}

/// Returns the current sharding of a tensor.
fn source(
    tensor: &Tensor,
    checkpoint: &Checkpoint,
    wish: &Wish<'_>,
    tally: &mut Tally,
) -> Result<Sharding, Error> {
    let mesh = match &checkpoint.origin {
        Origin::Sharded(mesh) => mesh,
        Origin::Embedded | Origin::Files => &wish.mesh,
    };
    let said = match &wish.from {
        Some(text) => Some(parse_or_replicate(tensor, mesh, text, true, tally)?.0),
        None => None,
    };
    if said.as_ref().is_some_and(Sharding::is_partial) {
        let message = "`--from` has a partial sum, but files hold complete values; use `R` or `S(d)` there";
        return Err(Error::refused("partial_source", message));
    }
    match (&tensor.data, said) {
        (Data::Whole(_) | Data::Chunks { .. }, Some(said)) => Ok(said),
        (Data::Whole(_) | Data::Chunks { .. }, None) => Ok(Sharding::replicated(mesh, &tensor.shape)?),
        (Data::Shards { sharding, .. }, Some(said)) if said != **sharding => {
            let message = format!("`--from` is `{said}`, but the manifest has `{sharding}`; drop `--from`");
            Err(Error::refused("from", message))
        }
        (Data::Shards { sharding, .. }, _) => Ok((**sharding).clone()),
    }
}

/// Returns the target sharding of a tensor, and the reason if it is replicated instead.
///
/// If `lenient`, a target that does not fit means replication, not an error.
fn target(
    tensor: &Tensor,
    wish: &Wish<'_>,
    text: &str,
    lenient: bool,
    tally: &mut Tally,
) -> Result<(Sharding, Option<String>), Error> {
    let (to, replicated) = parse_or_replicate(tensor, &wish.mesh, text, lenient, tally)?;
    if to.is_partial() {
        return Err(partial(text));
    }
    Ok((to, replicated))
}

fn partial(text: &str) -> Error {
    let message = format!("`{text}` has a partial sum, but files hold complete values; use R or S there");
    Error::refused("partial_target", message)
}

/// Returns the shardings of the parts that every rank concatenates; `None` if it is as one sharding of the whole.
///
/// If `lenient` and the parts lack a dim, it returns `None` too: the whole has no such dim either.
fn by_part(
    tensor: &Tensor,
    wish: &Wish<'_>,
    text: &str,
    lenient: bool,
    tally: &mut Tally,
) -> Result<Option<ByPart>, Error> {
    let Some(parts) = &tensor.parts else {
        if text.contains('|') {
            let message = format!(
                "`{text}` has placements by part, but no rule with `|` makes it: pass one placement for each mesh axis"
            );
            return Err(Error::refused("spec", message));
        }
        return Ok(None);
    };
    if lenient && Sharding::parse(&wish.mesh, &tensor.shape, text).is_err_and(|error| lacks_dims(&error)) {
        return Ok(None);
    }
    let parsed = ByPart::parse(&wish.mesh, &tensor.shape, parts, text)?;
    if parsed.shardings().iter().any(Sharding::is_partial) {
        return Err(partial(text));
    }
    if let Some(other) = parsed.shardings().iter().find(|one| *one.mesh() != wish.mesh) {
        return Err(other_mesh(text, other));
    }
    tally.any = true;
    // If one text replicates all parts, each rank has the whole in order.
    let replicates =
        |one: &Sharding| Sharding::replicated(&wish.mesh, one.shape()).is_ok_and(|all| all == *one);
    let is_whole = !text.contains('|') && parsed.shardings().iter().all(replicates);
    Ok((!is_whole).then_some(parsed))
}

/// Returns `true` if the tensor does not have the dims that the placements name.
fn lacks_dims(error: &reshard_sharding::Error) -> bool {
    matches!(error, reshard_sharding::Error::NoSuchDim { .. } | reshard_sharding::Error::DimCount { .. })
}

fn other_mesh(text: &str, parsed: &Sharding) -> Error {
    Error::refused(
        "mesh",
        format!(
            "{text} is a sharding on the mesh {}, with a different order of ranks; give that mesh and {parsed}",
            parsed.mesh()
        ),
    )
}

/// Parses `text` as a sharding of the tensor.
///
/// If `lenient` and the tensor lacks a dim, returns the replicated sharding with the reason.
fn parse_or_replicate(
    tensor: &Tensor,
    mesh: &Mesh,
    text: &str,
    lenient: bool,
    tally: &mut Tally,
) -> Result<(Sharding, Option<String>), Error> {
    match Sharding::parse(mesh, &tensor.shape, text) {
        Ok(sharding) if sharding.mesh() != mesh => Err(other_mesh(text, &sharding)),
        Ok(sharding) => {
            tally.any = true;
            Ok((sharding, None))
        }
        Err(error) if lenient && lacks_dims(&error) => {
            tally.reason = Some(error.to_string());
            Ok((Sharding::replicated(mesh, &tensor.shape)?, Some(error.to_string())))
        }
        Err(error) => Err(error.into()),
    }
}
