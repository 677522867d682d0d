//! Normalisations that also give the moments they divided by, which a backward pass reads.

use super::Family;
use crate::Error;
use crate::rules::bound_call::BoundCall;
use crate::rules::op::Op;

families! {
    "native_batch_norm" ("eps: real >= 0 = 0.00001") => batch;
    "native_group_norm" ("groups: number >= 1, eps: real >= 0 = 0.00001") => group;
    "fused_rms_norm" ("last: number of dims = 1, eps: real >= 0 = none") => rms;
}

/// Letters of the dims of space.
fn space(r: &BoundCall<'_>) -> Result<String, Error> {
    let Some(n) = r.input(0)?.len().checked_sub(2) else {
        return Err(r.error("needs an input with dims for batch and channels"));
    };
    Ok(r.letters(26)?.into_iter().filter(|c| !"bcg".contains(*c)).take(n).collect())
}

/// Declares that these letters stay whole, and the passings of weight and bias.
fn whole(letters: impl Iterator<Item = char>) -> String {
    let roles: Vec<String> = letters.map(|c| format!("{c}: replicate")).collect();
    format!(
        "{}, (R,P,P -> P,R,R), (R,P(avg),P(avg) -> P(avg),R,R), (R,R,P(max) -> P(max),R,R), (R,R,P(min) -> P(min),R,R)",
        roles.join(", ")
    )
}

/// `bcx,c,c->bcx,c,c`.
fn batch(r: &BoundCall<'_>) -> Result<Op, Error> {
    r.inputs_of(3..=3)?;
    let space = space(r)?;
    let stays = whole("b".chars().chain(space.chars()));
    r.op(&format!("bc{space},c,c->bc{space},c,c {{{stays}}}").parse()?)
}

/// `b(gc)x,(gc),(gc)->b(gc)x,bg,bg`.
fn group(r: &BoundCall<'_>) -> Result<Op, Error> {
    r.inputs_of(3..=3)?;
    let (space, groups) = (space(r)?, r.size("groups")?);
    let stays = whole("c".chars().chain(space.chars()));
    r.op(&format!("b(gc){space},(gc),(gc)->b(gc){space},bg,bg {{g: {groups}, {stays}}}").parse()?)
}

/// `ij,j->ij,i1`.
fn rms(r: &BoundCall<'_>) -> Result<Op, Error> {
    r.inputs_of(2..=2)?;
    let all: String = r.letters(r.inputs[0].len())?.into_iter().collect();
    let (kept, last) = all.split_at(all.len() - r.count("last")?);
    let roles: Vec<String> = last.chars().map(|c| format!("{c}: replicate")).collect();
    let terms = "(R,P -> P,R), (R,P(avg) -> P(avg),R)";
    let ones = "1".repeat(last.len());
    r.op(&format!("{all},{last}->{all},{kept}{ones} {{{}, {terms}}}", roles.join(", ")).parse()?)
}
