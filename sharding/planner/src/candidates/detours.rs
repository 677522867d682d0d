//! Intermediate shardings through which uneven partial values may need fewer bytes: one end with blocks of a
//! dim in place of some of its partial axes.
//!
//! ```text
//! P,P -> R,R      through    P,S(0)     partial values over one axis are reduced first: the others are smaller then
//! P,S(0) -> P,R              S(0),R     partial values that could stay are reduced and restored: each copy is sent once for all
//! S(0),P -> P,S(0)           S(1),S(0)  data that becomes partial is sharded first, and then each shard is a partial value
//! ```
//!
//! Where every dim divides evenly, the routes over digits cover all of these.

use smallvec::SmallVec;

use crate::Error;
use crate::candidates::regions::pieces;
use crate::problem::Question;
use reshard_sharding::{PartialAxis, Sharding, SubAxis};

/// Maximum number of partial axes of one end for which these are generated.
///
/// The number of candidates grows with the subsets of these axes.
const AXES: usize = 3;

/// Returns all intermediate shardings, each once.
pub(crate) fn between(q: &Question<'_>) -> Result<Vec<Sharding>, Error> {
    let mut all = Vec::new();
    let end = if q.to.is_partial() { q.to } else { q.from };
    let terms = end.partial();
    for set in 1usize..if terms.len() <= AXES { 1 << terms.len() } else { 1 } {
        let (mut parts, mut kept) = (SmallVec::<[SubAxis; AXES]>::new(), Vec::<PartialAxis>::new());
        for (at, p) in terms.iter().enumerate() {
            if set >> at & 1 == 1 { parts.push(p.sub) } else { kept.push(*p) }
        }
        let without = end.with_partial(kept)?;
        for dim in 0..end.shape().len() {
            if let Some(made) = pieces(&without, &parts, dim)?
                && ![q.from, q.to].contains(&&made)
                && !all.contains(&made)
            {
                all.push(made);
            }
        }
    }
    Ok(all)
}
