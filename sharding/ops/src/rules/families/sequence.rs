//! Ops without inputs: sequences, windows, frequencies, orders and the indices of triangles.

use super::Family;
use super::factory::{arange, drawn, made};
use crate::Error;
use crate::rules::bound_call::BoundCall;
use crate::rules::op::Op;

const TRIANGLE: &str = "rows: number >= 0, columns: number >= 0";

families! {
    "linspace" ("size: number >= 0, start: real = none, end: real = none") => arange;
    "logspace" ("size: number >= 0, start: real = none, end: real = none, base: real = 10") => arange;
    "randperm" ("size: number >= 0, key: numbers >= 0 = none") => arange;
    "bartlett_window" ("size: number >= 0, periodic: flag = true") => arange;
    "blackman_window" ("size: number >= 0, periodic: flag = true") => arange;
    "hamming_window" ("size: number >= 0, periodic: flag = true, alpha: real = 0.54, beta: real = 0.46") => arange;
    "hann_window" ("size: number >= 0, periodic: flag = true") => arange;
    "kaiser_window" ("size: number >= 0, periodic: flag = true, beta: real = 12") => arange;
    "fftfreq" ("size: number >= 0, d: real = 1") => arange;
    "rfftfreq" ("size: number >= 0, d: real = 1") => |r| made(r, &[r.size("size")? / 2 + 1]);
    "randint" ("shape: numbers >= 0, low: number = 0, high: number = none, key: numbers >= 0 = none") => drawn;
    "tril_indices" (TRIANGLE) => |r| triangle(r, true);
    "triu_indices" (TRIANGLE) => |r| triangle(r, false);
}

/// Rows and columns of the elements on and below the diagonal, or on and above it.
fn triangle(r: &BoundCall<'_>, below: bool) -> Result<Op, Error> {
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
