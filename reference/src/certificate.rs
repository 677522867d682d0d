//! Certificates of lower bounds, checked by weak duality in integers.
//!
//! ```text
//! model         the cost c.x is minimised over whole x with 0 <= x <= most; in each row a.x = to, or a.x <= to
//! certificate   one weight y for each row; y <= 0 for rows with <=
//!
//! c.x  >=  y.to + (c - y.a).x  >=  y.to + sum over columns of least of (c - y.a) x  within its limits      (1)
//! ```
//!
//! This holds for any weights, so nothing about their origin is trusted, and rounded weights only bound less.
//! Weights are multiples of `1 / scale`. With `infeasible`, costs are read as 0, and a positive sum (1)
//! shows that no x exists. A proof may also part the values of a column, at most `at` or more; each part has
//! its own proof, and the least of the two counts.
//!
//! ```
//! // Two ways to keep 32 layers: 320 us and 176 MB, or 450 us and 132 MB; 5,000 MB are there.
//! let model = r#"{"rows": [{"name": "layers", "is": "=", "to": 32}, {"name": "memory", "is": "<=", "to": 5000}],
//!     "columns": [{"name": "reduced", "cost": 320, "most": 32, "rows": [[0, 1], [1, 176]]},
//!                 {"name": "gathered", "cost": 450, "most": 32, "rows": [[0, 1], [1, 132]]}]}"#;
//! // A MB is worth 130 / 44 = 2.954 us.
//! let proof = r#"{"scale": 1000, "proof": {"weights": [839904, -2954]}}"#;
//! assert_eq!(reshard_reference::certify(model, proof)?, Some(12107));
//! # Ok::<(), reshard_reference::Error>(())
//! ```

use serde::Deserialize;

use crate::Error;

#[derive(Deserialize)]
struct Model {
    rows: Vec<Row>,
    columns: Vec<Column>,
}

#[derive(Deserialize)]
struct Row {
    name: String,
    is: Relation,
    to: i64,
}

#[derive(Clone, Copy, PartialEq, Deserialize)]
enum Relation {
    #[serde(rename = "=")]
    Equal,
    #[serde(rename = "<=")]
    AtMost,
}

#[derive(Deserialize)]
struct Column {
    cost: i64,
    most: u32,
    rows: Vec<(usize, i64)>,
}

#[derive(Deserialize)]
struct Certificate {
    scale: u32,
    proof: Proof,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Proof {
    Weights {
        weights: Vec<i64>,
        #[serde(default)]
        infeasible: bool,
    },
    Parts {
        column: usize,
        at: u32,
        below: Box<Proof>,
        above: Box<Proof>,
    },
}

/// Returns the cost that every assignment of a model has at least, by a certificate; `None` if there is none.
///
/// Fails with `input` for texts that are not a model and a certificate of it, and for numbers beyond 128 bits.
pub fn certify(model: &str, certificate: &str) -> Result<Option<i64>, Error> {
    let model: Model = serde_json::from_str(model).map_err(|e| refused(format!("the model: {e}")))?;
    let certificate: Certificate =
        serde_json::from_str(certificate).map_err(|e| refused(format!("the certificate: {e}")))?;
    if certificate.scale == 0 {
        return Err(refused("the scale of a certificate is at least 1, not 0".to_owned()));
    }
    for column in &model.columns {
        if let Some((row, _)) = column.rows.iter().find(|(row, _)| *row >= model.rows.len()) {
            return Err(refused(format!(
                "a column is in row {row}, but the model has {} rows",
                model.rows.len()
            )));
        }
    }
    let mut limits: Vec<(u32, u32)> = model.columns.iter().map(|column| (0, column.most)).collect();
    let scaled = model.bound(i128::from(certificate.scale), &certificate.proof, &mut limits)?;
    // Costs are whole numbers: at least 2.1 is at least 3.
    let scale = i128::from(certificate.scale);
    let whole = |bound: i128| bound.div_euclid(scale) + i128::from(bound.rem_euclid(scale) > 0);
    scaled.map(|bound| i64::try_from(whole(bound)).map_err(|_| too_large())).transpose()
}

impl Model {
    /// Returns the bound of a proof within these limits of columns, times the scale.
    fn bound(&self, scale: i128, proof: &Proof, limits: &mut [(u32, u32)]) -> Result<Option<i128>, Error> {
        match proof {
            Proof::Weights { weights, infeasible } => {
                let bound = self.weighed(if *infeasible { 0 } else { scale }, weights, limits)?;
                match (infeasible, bound > 0) {
                    (true, true) => Ok(None),
                    (true, false) => Err(refused(format!(
                        "the sum of an infeasible part is {bound}, which is not positive"
                    ))),
                    (false, _) => Ok(Some(bound)),
                }
            }
            Proof::Parts { column, at, below, above } => {
                let Some(&(least, most)) =
                    limits.get(*column).filter(|(least, most)| least <= at && at < most)
                else {
                    return Err(refused(format!("column {column} cannot be parted at {at}")));
                };
                limits[*column] = (least, *at);
                let below = self.bound(scale, below, limits)?;
                limits[*column] = (at + 1, most);
                let above = self.bound(scale, above, limits)?;
                limits[*column] = (least, most);
                Ok(below.into_iter().chain(above).min())
            }
        }
    }

    /// Returns the sum (1), times the scale.
    fn weighed(&self, scale: i128, weights: &[i64], limits: &[(u32, u32)]) -> Result<i128, Error> {
        if weights.len() != self.rows.len() {
            return Err(refused(format!("{} weights for {} rows", weights.len(), self.rows.len())));
        }
        let mut sum = 0i128;
        for (row, &weight) in self.rows.iter().zip(weights) {
            if row.is == Relation::AtMost && weight > 0 {
                return Err(refused(format!("row `{}` is at most, and its weight is {weight}", row.name)));
            }
            sum = sum.checked_add(i128::from(weight) * i128::from(row.to)).ok_or_else(too_large)?;
        }
        for (column, &(least, most)) in self.columns.iter().zip(limits) {
            let mut left = scale * i128::from(column.cost);
            for &(row, times) in &column.rows {
                let part = i128::from(weights[row]) * i128::from(times);
                left = left.checked_sub(part).ok_or_else(too_large)?;
            }
            let taken = i128::from(if left < 0 { most } else { least });
            let part = left.checked_mul(taken).ok_or_else(too_large)?;
            sum = sum.checked_add(part).ok_or_else(too_large)?;
        }
        Ok(sum)
    }
}

fn refused(reason: String) -> Error {
    Error::Input { reason }
}

fn too_large() -> Error {
    refused("the numbers of the certificate are too large".to_owned())
}
