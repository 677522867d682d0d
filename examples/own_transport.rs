//! A plan carried out by hand: what a framework with a transport of its own does.
//!
//! A plan says for every rank and step which blocks land in its buffer, and where they lie in whose buffer. Here a
//! "transport" is a loop over elements; yours is whatever moves bytes between your ranks.
//!
//!     cargo run --example own_transport

use std::io::{self, Write};

use reshard::{Mesh, Plan, Planner, Sharding, scatter};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mesh: Mesh = "dp=2,tp=4".parse()?;
    let from = Sharding::parse(&mesh, &[6, 16], "S(0),S(1)")?;
    let to = Sharding::parse(&mesh, &[6, 16], "R,S(0)")?;
    let plan = Planner::new().plan(&from, &to, size_of::<u32>())?;
    writeln!(io::stdout(), "{plan}")?;

    let tensor: Vec<u32> = (0..6 * 16).collect();
    let shards = carry_out(&plan, scatter(&from, &tensor, 0)?)?;
    assert_eq!(shards, scatter(&to, &tensor, 0)?);
    writeln!(io::stdout(), "rank 5 now holds {:?}", shards[5])?;
    Ok(())
}

/// Every rank's buffer, step by step. There are no partial sums here, so nothing is reduced and nothing filled.
fn carry_out(plan: &Plan, mut buffers: Vec<Vec<u32>>) -> Result<Vec<Vec<u32>>, reshard::sharding::Error> {
    for step in 0..plan.steps().len() {
        let mut after = Vec::with_capacity(buffers.len());
        for (rank, buffer) in buffers.iter().enumerate() {
            let mut now = buffer.clone();
            for phase in plan.phases(step, rank)? {
                now = vec![0; phase.target_len];
                for message in &phase.receives {
                    for block in &message.blocks {
                        copy(
                            &mut now[block.target_offset..],
                            &buffers[message.peer][block.source_offset..],
                            &block.modes,
                        );
                    }
                }
            }
            after.push(now);
        }
        buffers = after;
    }
    Ok(buffers)
}

/// The loop nest of one block, outermost mode first.
fn copy(target: &mut [u32], source: &[u32], modes: &[reshard::sharding::redistribute::Mode]) {
    match modes {
        [] => target[0] = source[0],
        [outer, inner @ ..] => {
            for i in 0..outer.extent {
                copy(&mut target[i * outer.target_stride..], &source[i * outer.source_stride..], inner);
            }
        }
    }
}
