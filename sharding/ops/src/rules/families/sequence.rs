//! Numbers made of nothing: sequences, windows, frequencies, orders and the indices of triangles.

use super::Family;
use super::factory::{arange, drawn, made};
use crate::Error;
use crate::rules::op::Op;
use crate::rules::request::Request;

const SIZE: &str = "size: number >= 0";
const TRIANGLE: &str = "rows: number >= 0, columns: number >= 0";

families! {
    "linspace" (SIZE) => arange;
    "logspace" (SIZE) => arange;
    "randperm" (SIZE) => arange;
    "bartlett_window" (SIZE) => arange;
    "blackman_window" (SIZE) => arange;
    "hamming_window" (SIZE) => arange;
    "hann_window" (SIZE) => arange;
    "kaiser_window" (SIZE) => arange;
    "fftfreq" (SIZE) => arange;
    "rfftfreq" (SIZE) => |r| made(r, &[r.size("size")? / 2 + 1]);
    "randint" ("shape: numbers >= 0") => drawn;
    "tril_indices" (TRIANGLE) => |r| triangle(r, true);
    "triu_indices" (TRIANGLE) => |r| triangle(r, false);
}

/// Rows and columns of the elements on and below the diagonal, or on and above it.
fn triangle(r: &Request<'_>, below: bool) -> Result<Op, Error> {
    let (rows, columns) = (r.size("rows")?, r.size("columns")?);
    let fits = rows.min(columns);
    let on_and_below = (fits.checked_add(1).and_then(|n| n.checked_mul(fits)))
        .map(|twice| twice / 2)
        .and_then(|square| square.checked_add((rows - fits).checked_mul(columns)?));
    let count = match (on_and_below, rows.checked_mul(columns)) {
        (Some(n), _) if below => Some(n),
        (Some(n), Some(all)) => Some(all - n + fits),
        (None, _) | (_, None) => None,
    };
    made(r, &[2, count.ok_or_else(|| Error::overflow("the indices of a triangle".to_owned()))?])
}
