//! The ledger of costs: no golden plan may become dearer.
//!
//! Each request has its primary and secondary cost, in the order of its objective: picoseconds by the
//! messages in both directions, received bytes, and peak bytes. A request without a plan costs
//! `u64::MAX`. Cheaper plans are counted, and do not fail; writing the ledger lists the dearer ones.

use reshard_planner::{Objective, Plan, Topology};
use reshard_test_support::both_directions::picoseconds;

use crate::{Asked, BLOCK, PLANS, kept_file};

/// The primary and the secondary cost.
pub(crate) type Price = [u64; 2];

/// The price of a request without a plan.
pub(crate) const NO_PLAN: Price = [u64::MAX; 2];

/// Bytes of a price in the file.
const STORED: usize = 16;

/// Returns the price of a plan.
pub(crate) fn price(plan: &Plan, topology: &Topology) -> Price {
    let time = picoseconds(plan, topology);
    match plan.options().objective() {
        Objective::Time => [time, plan.received_bytes()],
        Objective::Bytes => [plan.received_bytes(), time],
        Objective::Peak => [plan.peak_bytes(), time],
    }
}

fn stored(bytes: &[u8]) -> Price {
    [0, 8].map(|at| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes")))
}

/// Compares prices, by block, with those of `ledger.bin`: pairs of 64 bits, little-endian.
pub(crate) fn compare(asked: &Asked, found: &[(u64, Vec<(String, Price)>)]) {
    let path = kept_file("ledger.bin");
    let kept = std::fs::read(&path).expect("the ledger");
    assert_eq!(kept.len(), (PLANS * BLOCK) as usize * STORED, "{} has a price a request", path.display());
    let mut changed = [Vec::new(), Vec::new()];
    for (block, answers) in found {
        for (i, (text, now)) in answers.iter().enumerate() {
            let before = stored(&kept[((*block * BLOCK) as usize + i) * STORED..]);
            if *now != before {
                let request = text.split(" = ").next().unwrap_or(text);
                changed[usize::from(*now > before)].push(format!("{before:?} -> {now:?}: {request}"));
            }
        }
    }
    let [cheaper, dearer] = changed;
    println!("{} cheaper and {} dearer plans", cheaper.len(), dearer.len());
    if let Asked::Write = asked {
        for line in &dearer {
            println!("dearer: {line}");
        }
        let mut kept = kept;
        for (block, answers) in found {
            for (i, (_, price)) in answers.iter().enumerate() {
                let at = ((*block * BLOCK) as usize + i) * STORED;
                let bytes: Vec<u8> = price.iter().flat_map(|n| n.to_le_bytes()).collect();
                kept[at..at + STORED].copy_from_slice(&bytes);
            }
        }
        std::fs::write(&path, kept).expect("the ledger");
        return;
    }
    let shown: Vec<&String> = dearer.iter().take(20).collect();
    assert!(dearer.is_empty(), "{} plans are dearer than in the ledger: {shown:#?}", dearer.len());
}
