//! Cells of recurrent networks: one step of a batch.
//!
//! Gates are the major factor of the rows of a weight, so that a rank that holds some hidden units holds them
//! of every gate.

use super::Family;
use crate::Error;
use crate::rules::bound_call::BoundCall;
use crate::rules::op::Op;

families! {
    "rnn_tanh_cell" ("") => |r| cell(r, "bi,bk,hi,hk,h,h->bh {i: replicate, k: replicate, increasing(4,5)}");
    "rnn_relu_cell" ("") => |r| cell(r, "bi,bk,hi,hk,h,h->bh {i: replicate, k: replicate, increasing(4,5)}");
    "lstm_cell" ("") => |r| cell(r, "bi,bk,bh,(gh)i,(gh)k,(gh),(gh)->bh,bh {g: 4 replicate, i: replicate, k: replicate, increasing(2)}");
    // Every hidden unit is needed by itself and by all others.
    "gru_cell" ("") => |r| cell(r, "bi,bh,(gh)i,(gh)h,(gh),(gh)->bh {g: 3 replicate, i: replicate, h: replicate, none}");
}

/// An input, a state, perhaps memory, two weights and two biases.
fn cell(r: &BoundCall<'_>, rule: &str) -> Result<Op, Error> {
    let op = r.op(&rule.parse()?)?;
    let (state, out) = (op.inputs()[1].last(), op.outputs()[0].last());
    if state == out {
        return Ok(op);
    }
    Err(r.error("the input state and the output state have different numbers of hidden units"))
}
