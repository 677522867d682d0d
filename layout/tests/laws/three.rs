//! Properties of three layouts.

use reshard_layout::reference;

use crate::small::{full, tiny};

#[test]
fn compose_is_associative_where_defined() {
    let all = tiny();
    let mut defined = 0_u32;
    for a in &all {
        for b in &all {
            let Ok(ab) = a.compose(b) else { continue };
            for c in &all {
                let left = ab.compose(c);
                let right = b.compose(c).and_then(|bc| a.compose(&bc));
                if let (Ok(left), Ok(right)) = (&left, &right) {
                    defined += 1;
                    assert!(left.is_equivalent(right), "({a} o {b}) o {c} is {left}, and not {right}");
                }
                // One function either is a layout or is not, however it was bracketed.
                if let (Ok(left), true) = (&left, full()) {
                    let outer = reference::values(a);
                    let inner = reference::compose(b, c).expect("in the domain");
                    assert!(inner.iter().zip(left.values()).all(|(v, w)| outer[*v as usize] == w));
                }
            }
        }
    }
    assert!(defined > 10_000, "only {defined} triples");
}

#[test]
fn compose_distributes_over_concatenation_where_defined() {
    let all = tiny();
    for a in &all {
        for b in &all {
            for c in &all {
                let Ok(tuple) = reshard_layout::Layout::concat(&[b.clone(), c.clone()]) else { continue };
                if let Ok(r) = a.compose(&tuple) {
                    let (left, right) = (a.compose(b), a.compose(c));
                    assert_eq!(r.mode(0), left, "{a} o ({b}, {c})");
                    assert_eq!(r.mode(1), right, "{a} o ({b}, {c})");
                }
            }
        }
    }
}
