//! Which sharding every tensor comes from and goes to.
//!
//! `--to` is said once for a whole checkpoint, and a checkpoint holds matrices, vectors and scalars. So it applies where
//! a tensor has all the dims that it names; elsewhere the tensor is replicated, and the report says why. Where the wish
//! was about particular tensors (`--tensor`, `--spec`) there is no such leniency, nor where no tensor has the dims.

use reshard_sharding::{Mesh, Sharding};

use super::checkpoint::{Checkpoint, Data, Origin, Tensor};
use super::units::Units;
use super::wish::Wish;
use crate::error::Error;

/// One tensor's way.
pub(crate) struct Move<'a> {
    pub(crate) tensor: &'a Tensor,
    pub(crate) from: Sharding,
    pub(crate) to: Sharding,
    /// Why it is replicated although the wish was another.
    pub(crate) replicated: Option<String>,
    /// The same two shardings as the exchange sees them.
    pub(crate) units: Units,
    pub(crate) unit_from: Sharding,
    pub(crate) unit_to: Sharding,
}

/// Decides about every tensor that the wish is about, in the order of the checkpoint.
pub(crate) fn decide<'a>(checkpoint: &'a Checkpoint, wish: &Wish<'_>) -> Result<Vec<Move<'a>>, Error> {
    let wanted = |tensor: &&Tensor| wish.tensor.is_none_or(|name| name == tensor.name);
    let tensors: Vec<&Tensor> = checkpoint.tensors.iter().filter(wanted).collect();
    if let (Some(name), true) = (wish.tensor, tensors.is_empty()) {
        checkpoint.tensor(name)?;
    }
    let mut fits = Fits::default();
    let mut moves = Vec::with_capacity(tensors.len());
    for tensor in tensors {
        let decided = decide_one(tensor, checkpoint, wish, &mut fits);
        moves.push(decided.map_err(|error| error.about_tensor(&tensor.name))?);
    }
    if let Some(spec) = wish.spec {
        spec.all_used(checkpoint.tensors.iter().map(|tensor| &tensor.name[..]))?;
    }
    fits.check(wish)?;
    Ok(moves)
}

/// Whether any tensor had the dims that `--from` and `--to` name; with the last reason why not.
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
    let lenient = by_name.is_none() && wish.tensor.is_none();
    let (mut to, mut replicated) = target(tensor, wish, by_name, lenient, &mut fits.to)?;
    let unit_to = match units.sharding(&to) {
        Ok(unit_to) => unit_to,
        Err(why) if lenient => {
            replicated = Some(packed(tensor, &to, &why).to_string());
            to = Sharding::replicated(&wish.mesh, &tensor.shape)?;
            units.sharding(&to).map_err(|why| packed(tensor, &to, &why))?
        }
        Err(why) => return Err(packed(tensor, &to, &why)),
    };
    Ok(Move { tensor, from, to, replicated, units, unit_from, unit_to })
}

fn packed(tensor: &Tensor, sharding: &Sharding, why: &str) -> Error {
    Error::refused("packed", format!("{} of {:?} cannot be `{sharding}`: {why}", tensor.dtype, tensor.shape))
}

/// The sharding a tensor has now.
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
        Some(text) => Some(parse_or_replicate(tensor, mesh, text, wish.tensor.is_none(), tally)?.0),
        None => None,
    };
    if said.as_ref().is_some_and(Sharding::is_partial) {
        let message = "--from has a partial sum, and files hold whole values, not terms of sums";
        return Err(Error::refused("partial_source", message));
    }
    match (&tensor.data, said) {
        (Data::Whole(_) | Data::Chunks { .. }, Some(said)) => Ok(said),
        (Data::Whole(_) | Data::Chunks { .. }, None) => Ok(Sharding::replicated(mesh, &tensor.shape)?),
        (Data::Shards { sharding, .. }, Some(said)) if said != **sharding => {
            let message =
                format!("--from says `{said}`, and the manifest says `{sharding}`: leave --from out");
            Err(Error::refused("from", message))
        }
        (Data::Shards { sharding, .. }, _) => Ok((**sharding).clone()),
    }
}

/// The sharding a tensor is to have, and why it is replicated if the wish was another.
///
/// `by_name` is what the spec says about it; `lenient`: a target that it cannot take means replication, not an error.
fn target(
    tensor: &Tensor,
    wish: &Wish<'_>,
    by_name: Option<&str>,
    lenient: bool,
    tally: &mut Tally,
) -> Result<(Sharding, Option<String>), Error> {
    let Some(text) = by_name.or(wish.to.as_deref()) else {
        let message = "no pattern of the spec matches it and there is no --to; a last pattern \"*\" would";
        return Err(Error::refused("spec", message));
    };
    let (to, replicated) = parse_or_replicate(tensor, &wish.mesh, text, lenient, tally)?;
    if to.is_partial() {
        let message = format!("`{text}` has a partial sum, and files hold whole values: use R or S there");
        return Err(Error::refused("partial_target", message));
    }
    Ok((to, replicated))
}

/// `text` as a sharding of the tensor; or replicated, with the reason, where the tensor lacks a dim and that is
/// allowed.
fn parse_or_replicate(
    tensor: &Tensor,
    mesh: &Mesh,
    text: &str,
    lenient: bool,
    tally: &mut Tally,
) -> Result<(Sharding, Option<String>), Error> {
    match Sharding::parse(mesh, &tensor.shape, text) {
        Ok(sharding) if sharding.mesh() != mesh => Err(Error::refused(
            "mesh",
            format!(
                "{text} is a sharding on the mesh {}, in an order of its own: give that mesh and {sharding}",
                sharding.mesh()
            ),
        )),
        Ok(sharding) => {
            tally.any = true;
            Ok((sharding, None))
        }
        Err(
            error @ (reshard_sharding::Error::NoSuchDim { .. } | reshard_sharding::Error::DimCount { .. }),
        ) if lenient => {
            tally.reason = Some(error.to_string());
            Ok((Sharding::replicated(mesh, &tensor.shape)?, Some(error.to_string())))
        }
        Err(error) => Err(error.into()),
    }
}
