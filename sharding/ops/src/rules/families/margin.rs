//! Losses of pairs, margins and several classes, and of sequences.

use super::loss::{pointwise_of, rows};
use super::{Family, LOSS};
use crate::rules::factor::FactorKind;
use crate::rules::terms::affine;
use reshard_sharding::ReduceOp;

families! {
    // Element by element.
    "huber_loss" ("reduction: mean|sum|none = mean, delta: real >= 0 = 1") => |r| pointwise_of(r, 2, vec![]);
    "soft_margin_loss" (LOSS) => |r| pointwise_of(r, 2, vec![]);
    "hinge_embedding_loss" ("reduction: mean|sum|none = mean, margin: real = 1") => |r| pointwise_of(r, 2, vec![]);
    "poisson_nll_loss" ("reduction: mean|sum|none = mean, log_input: flag = true, full: flag = false, eps: real >= 0 = 0.00000001") => |r| pointwise_of(r, 2, if r.flag("full")? { vec![] } else { vec![affine([1])] });
    "gaussian_nll_loss" ("reduction: mean|sum|none = mean, full: flag = false, eps: real >= 0 = 0.000001") => |r| pointwise_of(r, 3, vec![]);
    "margin_ranking_loss" ("reduction: mean|sum|none = mean, margin: real = 0") => |r| pointwise_of(r, 3, vec![]);
    // Row by row.
    "triplet_margin_loss" ("reduction: mean|sum|none = mean, margin: real = 1, p: real = 2, eps: real >= 0 = 0.000001") => |r| rows(r, &["bc", "bc", "bc"], FactorKind::NeedReplication, vec![]);
    "cosine_embedding_loss" ("reduction: mean|sum|none = mean, margin: real = 0") => |r| rows(r, &["bc", "bc", "b"], FactorKind::NeedReplication, vec![]);
    "multi_margin_loss" ("reduction: mean|sum|none = mean, p: number >= 1 = 1, margin: real = 1") => |r| rows(r, &["bc", "b"], FactorKind::NeedReplication, vec![]);
    "multilabel_margin_loss" (LOSS) => |r| rows(r, &["bc", "bc"], FactorKind::NeedReplication, vec![]);
    "multilabel_soft_margin_loss" (LOSS) => |r| rows(r, &["bc", "bc"], FactorKind::Reduction(ReduceOp::Avg), vec![affine([1])]);
    "ctc_loss" (LOSS) => |r| rows(r, &["tbc", "bs", "b", "b"], FactorKind::NeedReplication, vec![]);
}
