//! A byte tensor of more than 2^31 elements: from rank 0 to rank 1 in one message, then back through staging.

use std::collections::BTreeMap;

use reshard_collectives::{BufferLayout, Communicator, CompiledPlan};
use reshard_kernels::DType;
use reshard_mpi::Comm;
use reshard_planner::Planner;
use reshard_sharding::{Mesh, Sharding};

/// Neither side divides a chunk of a message, and their product is above 2^31.
const SHAPE: [usize; 2] = [3, (1 << 31) / 3 + 4099];

/// Returns the byte of element (i, j): it depends on every bit of the index.
fn byte(i: usize, j: usize) -> u8 {
    (((j * 4 + i) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

pub(crate) fn run(comm: &mut Comm) {
    let [rows, columns] = SHAPE;
    assert!(rows * columns > 1 << 31);
    let on = |rank: usize| {
        let mesh: Mesh = format!("x=1@{rank}").parse().unwrap();
        Sharding::parse(&mesh, &SHAPE, "R").unwrap()
    };
    let rank = comm.rank();
    let move_it = |comm: &mut Comm, from: usize, source: &[u8], memory: &BufferLayout| {
        let plan = Planner::new().plan(&on(from), &on(1 - from), DType::U8).unwrap();
        let compiled = CompiledPlan::with_layouts(&plan, rank, &BufferLayout::RowMajor, memory).unwrap();
        let mut scratch = compiled.scratch(comm).unwrap();
        let mut target = vec![0; compiled.target_bytes()];
        compiled.run(comm, source, &mut target, &mut scratch).unwrap();
        assert_eq!(
            comm.take_trace().received_by(rank),
            if rank == from { 0 } else { (rows * columns) as u64 }
        );
        target
    };
    let mut source = Vec::new();
    if rank == 0 {
        for i in 0..rows {
            source.extend((0..columns).map(|j| byte(i, j)));
        }
    }
    let there = move_it(comm, 0, &source, &BufferLayout::RowMajor);
    drop(source);
    if rank == 1 {
        for (i, row) in there.chunks_exact(columns).enumerate() {
            assert!(row.iter().enumerate().all(|(j, found)| *found == byte(i, j)), "row {i}");
        }
    }
    // Back, with gaps of a few bytes between rows: the message cannot be received directly in the target.
    let pitch = columns + 5;
    let padded = format!("({rows},{columns}):({pitch},1)").parse().unwrap();
    let back = move_it(comm, 1, &there, &BufferLayout::Layouts(BTreeMap::from([(0, padded)])));
    drop(there);
    if rank == 0 {
        for i in 0..rows {
            let row = &back[i * pitch..][..columns];
            assert!(row.iter().enumerate().all(|(j, found)| *found == byte(i, j)), "row {i} back");
        }
    }
}
