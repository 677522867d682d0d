//! A plan executed by hand, as by a framework with a custom transport.
//!
//! A plan lists for every rank the blocks of its buffer that each peer gets, and the offsets of the blocks
//! that it receives. Here a "transport" is a map from (sender, receiver) to the elements that were sent;
//! yours is any means to send bytes between your ranks.
//!
//!     cargo run --example own_transport

use std::collections::HashMap;
use std::io::{self, Write};

use reshard::layout::Mode;
use reshard::planner::{Message, Phase};
use reshard::prelude::*;

/// The messages in flight.
type Transport = HashMap<(usize, usize), Vec<u32>>;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mesh: Mesh = "dp=2,tp=4".parse()?;
    let from = Sharding::parse(&mesh, &[6, 16], "S(0),S(1)")?;
    let to = Sharding::parse(&mesh, &[6, 16], "R,S(0)")?;
    let plan = Planner::new().plan(&from, &to, DType::U32)?;
    writeln!(io::stdout(), "{plan}")?;

    let tensor: Vec<u32> = (0..6 * 16).collect();
    let shards = carry_out(&plan, from.shard_all(&tensor, 0)?)?;
    assert_eq!(shards, to.shard_all(&tensor, 0)?);
    writeln!(io::stdout(), "rank 5 now holds {:?}", shards[5])?;
    Ok(())
}

/// Executes the plan on every rank's buffer, phase by phase.
///
/// Without partial values nothing is reduced or filled.
fn carry_out(plan: &Plan, mut buffers: Vec<Vec<u32>>) -> Result<Vec<Vec<u32>>, Box<dyn std::error::Error>> {
    let ranks = (0..buffers.len()).map(|rank| plan.phases(rank)).collect::<Result<Vec<_>, _>>()?;
    for at in 0..ranks[0].len() {
        let mut transport = Transport::new();
        for (rank, (phases, buffer)) in ranks.iter().zip(&buffers).enumerate() {
            for message in &phases[at].1.sends {
                transport.insert((rank, message.peer), pack(message, buffer));
            }
        }
        for (rank, (phases, buffer)) in ranks.iter().zip(&mut buffers).enumerate() {
            *buffer = receive(rank, &phases[at].1, buffer, &mut transport)?;
        }
    }
    Ok(buffers)
}

/// The buffer of a rank after a phase.
fn receive(
    rank: usize,
    phase: &Phase,
    buffer: &[u32],
    transport: &mut Transport,
) -> Result<Vec<u32>, Box<dyn std::error::Error>> {
    let mut now = vec![0; phase.target_len];
    for message in &phase.receives {
        let elements = if message.peer == rank {
            pack(message, buffer)
        } else {
            transport.remove(&(message.peer, rank)).ok_or("a message is missing")?
        };
        unpack(message, &elements, &mut now);
    }
    Ok(now)
}

/// The elements of a message, in the order of its blocks and their loops.
fn pack(message: &Message, buffer: &[u32]) -> Vec<u32> {
    let mut elements = Vec::with_capacity(message.numel());
    for block in &message.blocks {
        walk(&block.modes, block.source_offset, block.target_offset, &mut |from, _| {
            elements.push(buffer[from]);
        });
    }
    elements
}

/// Writes the elements of a message to their offsets, in the same order.
fn unpack(message: &Message, elements: &[u32], buffer: &mut [u32]) {
    let mut next = elements.iter();
    for block in &message.blocks {
        walk(&block.modes, block.source_offset, block.target_offset, &mut |_, to| {
            buffer[to] = next.next().copied().unwrap_or_default();
        });
    }
}

/// Every element of a block, the last mode slowest: an offset on either side.
fn walk(modes: &[Mode<(i64, i64)>], from: usize, to: usize, visit: &mut impl FnMut(usize, usize)) {
    match modes {
        [] => visit(from, to),
        [faster @ .., Mode { extent, stride: (source, target) }] => {
            for i in 0..*extent {
                walk(faster, from + (i * source) as usize, to + (i * target) as usize, visit);
            }
        }
    }
}
