//! The cost of a plan, against the cost of its messages.

use reshard_test_support::both_directions::directions;

use crate::plans::{Request, random, request};

/// The cost of a plan is that of its messages, in the direction that is worse.
///
/// Where digits do not nest with the domains of the network, the level of a digit is an approximation. There
/// are few such steps, and only those may differ.
#[test]
fn plans_say_what_their_messages_cost() {
    let (mut seen, mut sends_more, mut other) = (0, 0, Vec::new());
    for q in (0..200_000).step_by(40) {
        let mut text = format!("{q}");
        let Ok(Request { planner, topology, from, to, dtype }) = request(&mut random(q), &mut text) else {
            continue;
        };
        let Ok(plan) = planner.plan(&from, &to, dtype) else { continue };
        for step in plan.steps() {
            let Some(both) = directions(&plan, step, &topology) else { continue };
            assert_eq!(step.sent_bytes, both.sent_bytes, "{text}: {step}");
            let us = both.received_us.max(both.sent_us);
            seen += 1;
            sends_more += usize::from(both.sent_us > both.received_us * (1.0 + 1e-9));
            if (us - step.cost_us).abs() > 1e-9 * us {
                other.push(format!("{} received, {} sent: {text}: {step}", both.received_us, both.sent_us));
            }
        }
    }
    println!("{seen} exchanges, {sends_more} send more than they receive, {} priced otherwise", other.len());
    assert!(seen > 2_000 && sends_more > 500, "{seen} {sends_more}");
    assert!(other.len() * 100 < seen, "{} of {seen}: {other:#?}", other.len());
}
