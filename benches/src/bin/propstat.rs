#![allow(missing_docs)]
use reshard_benches::propagating::lists;
use reshard_sharding::propagate::{Propagator, search::STATS};
use std::sync::atomic::Ordering::Relaxed;
fn main() {
    for list in &lists() {
        let p = list.problems().unwrap();
        let mut rows = Vec::new();
        for inputs in &p.inputs {
            Propagator::new().propagate(&p.op, &p.mesh, inputs, &[]).unwrap();
            STATS.iter().for_each(|s| s.store(0, Relaxed));
            let t = std::time::Instant::now();
            let c = Propagator::new().propagate(&p.op, &p.mesh, inputs, &[]).unwrap();
            let us = t.elapsed().as_secs_f64() * 1e6;
            rows.push((us, STATS.iter().map(|s| s.load(Relaxed)).collect::<Vec<_>>(), format!("{} x {} -> {} | {} {:.2}", inputs[0].sharding, inputs[1].sharding, c.inputs[0], c.inputs[1], c.cost_us)));
        }
        rows.sort_by(|a, b| a.0.total_cmp(&b.0));
        println!("{} {} {}: median {:?} p75 {:?} worst {:?}", list.op, list.axes, list.terms, rows[rows.len()/2], rows[rows.len()*3/4], rows[rows.len()-1]);
    }
}
