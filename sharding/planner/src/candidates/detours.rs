//! Shardings between both ends by way of which uneven terms may move fewer bytes: one end with parts of a dim in place of some
//! of its terms.
//!
//! ```text
//! P,P -> R,R      by way of  P,S(0)     terms over one axis go first: the others are of less then
//! P,S(0) -> P,R              S(0),R     terms that may stay are reduced and made again: each copy moves once for all of them
//! S(0),P -> P,S(0)           S(1),S(0)  what is to be terms is parts first, and then each part is a term
//! ```
//!
//! Where every dim divides, the digits' routes look at all of these.

use smallvec::SmallVec;

use crate::Error;
use crate::candidates::regions::pieces;
use crate::question::Question;
use reshard_sharding::{PartialAxis, Sharding, SubAxis};

/// The most axes with terms of one end for which these are looked for: they are as many as sets of axes.
const AXES: usize = 3;

/// All of them, each once.
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
