//! Families: ops whose rule depends on arguments or on shapes.

mod normalize;
mod reduce;

use crate::Error;
use crate::rules::op::Op;
use crate::rules::request::Request;

/// A family: its name, the names of its arguments, and its rules.
pub(super) struct Family {
    pub(super) name: &'static str,
    pub(super) parameters: &'static [&'static str],
    pub(super) make: fn(&Request<'_>) -> Result<Op, Error>,
}

macro_rules! families {
    ($($name:literal ($($parameter:literal),*) => $make:expr;)*) => {
        /// All of them.
        pub(super) const ALL: &[Family] = &[
            $(Family { name: $name, parameters: &[$($parameter),*], make: $make },)*
        ];
    };
}

families! {
    "sum" ("dims", "keepdim") => |r| reduce::fold(r, "sum", "");
    "mean" ("dims", "keepdim") => |r| reduce::fold(r, "avg", "linear");
    "amax" ("dims", "keepdim") => |r| reduce::fold(r, "max", "");
    "softmax" ("dim") => |r| normalize::along(r, "");
    "view" ("shape") => view;
}

/// A reshape, in which one size may be -1.
fn view(r: &Request<'_>) -> Result<Op, Error> {
    r.inputs_of(1..=1)?;
    let Some(list) = r.numbers("shape")? else {
        return Err(r.error("needs shape: write view(shape=[2,3])"));
    };
    let all = crate::sharding::numel(r.inputs[0])?;
    let known = list.iter().filter(|&&n| n >= 0).try_fold(1usize, |p, &n| p.checked_mul(n as usize));
    let Some(known) = known else { return Err(Error::overflow(format!("the shape of {}", r.call))) };
    let open = list.iter().filter(|&&n| n < 0).count();
    if list.iter().any(|&n| n < -1) || open > 1 || (open == 1 && (known == 0 || !all.is_multiple_of(known))) {
        return Err(r.error(format!("{all} elements do not fit that shape, in which one size may be -1")));
    }
    let shape: Vec<usize> = list.iter().map(|&n| if n < 0 { all / known } else { n as usize }).collect();
    Op::view(r.inputs[0], &shape)
}
