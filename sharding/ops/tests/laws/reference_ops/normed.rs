//! Normalisations that also give the moments they divided by.

use reshard_verify::{Data, LocalView};

use super::along::in_pairs;
use super::{Example, example};

pub fn all() -> Vec<Example> {
    let three = [Data::Real; 3];
    let channels = |call| example(call, "6,6,2 6 6; 5,4,3 4 4").data(&three).near().budget(200);
    let groups = |call| example(call, "6,12,2 12 12; 5,12,3 12 12").data(&three).near().budget(200);
    let rows = |call| example(call, "6,6 6; 5,4 4").data(&three[..2]).near();
    vec![
        channels("native_batch_norm"),
        channels("native_batch_norm(eps=0.5)"),
        groups("native_group_norm(groups=6)")
            .locally(|l: &LocalView<'_>| format!("native_group_norm(groups={})", in_pairs(l))),
        groups("native_group_norm(groups=6,eps=0.5)")
            .locally(|l: &LocalView<'_>| format!("native_group_norm(groups={},eps=0.5)", in_pairs(l))),
        rows("fused_rms_norm"),
        rows("fused_rms_norm(eps=0.5)"),
    ]
}
