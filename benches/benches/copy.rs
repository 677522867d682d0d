//! Permutations on one thread, compared in turns with memcpy of the same bytes and with the crate `strided-perm`.
//!
//! With `RESHARD_WRITE=1` it writes `benches/results/copy.jsonl`. An argument selects the permutations whose names
//! contain it.

use std::hint::black_box;
use std::io::{Write, stdout};
use std::time::Instant;

use bytemuck::{NoUninit, Zeroable, cast_slice, cast_slice_mut};
use reshard_benches::Ratios;
use reshard_benches::copies::{PERMUTATIONS, Permutation};
use reshard_benches::results::{Measured, Results};
use strided_view::{StridedView, StridedViewMut};
use threadteam::Exec;

/// Turns of memcpy, the peer and this library; the medians of the ratios count.
const TURNS: usize = 11;
/// Bytes that a turn copies at least: small tensors are copied repeatedly.
const BYTES: usize = 16 << 20;

type Failure = Box<dyn std::error::Error>;

/// Seconds of memcpy, the peer and this library in one turn.
type Turn = [f64; 3];

/// Measures a permutation with elements of type `T`.
fn turns<T>(permutation: &Permutation) -> Result<Vec<Turn>, Failure>
where
    T: NoUninit + Zeroable + bytemuck::AnyBitPattern + Send + Sync,
{
    let copy = permutation.prepared()?;
    let (shape, (from, to)) = (permutation.target_shape(), permutation.strides());
    let mut source = vec![T::zeroed(); permutation.elements()];
    for (i, byte) in cast_slice_mut::<T, u8>(&mut source).iter_mut().enumerate() {
        *byte = (i % 251) as u8;
    }
    let mut target = source.clone();
    let mut theirs = |target: &mut Vec<T>| -> Result<(), Failure> {
        let source = StridedView::new(&source, &shape, &from, 0)?;
        strided_perm::copy_into(&mut StridedViewMut::new(target, &shape, &to, 0)?, &source, Exec::serial())?;
        Ok(())
    };
    let ours = |target: &mut Vec<T>| -> Result<(), Failure> {
        copy.run(cast_slice_mut(target), cast_slice(&source))?;
        Ok(())
    };
    let mut expected = target.clone();
    theirs(&mut expected)?;
    ours(&mut target)?;
    if cast_slice::<T, u8>(&expected) != cast_slice::<T, u8>(&target) {
        return Err(format!("the copies of `{}` differ", permutation.name).into());
    }
    let mut seconds = |copy: &mut dyn FnMut(&mut Vec<T>) -> Result<(), Failure>| -> Result<f64, Failure> {
        let begin = Instant::now();
        for _ in 0..(BYTES / size_of_val(source.as_slice())).max(1) {
            copy(black_box(&mut target))?;
        }
        Ok(begin.elapsed().as_secs_f64())
    };
    let mut plain = |target: &mut Vec<T>| -> Result<(), Failure> {
        target.copy_from_slice(&source);
        Ok(())
    };
    (0..TURNS).map(|_| Ok([seconds(&mut plain)?, seconds(&mut theirs)?, seconds(&mut { ours })?])).collect()
}

fn main() -> Result<(), Failure> {
    let only = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let command = "cargo bench -p reshard-benches --bench copy";
    let mut results = Results::new("copy", command, "engines.md")?;
    results.version("strided-perm", "0.10.0");
    writeln!(stdout(), "| permutation | GB/s | to memcpy (quartiles) | to strided-perm (quartiles) |")?;
    writeln!(stdout(), "|---|---|---|---|")?;
    for permutation in &PERMUTATIONS {
        if only.as_ref().is_some_and(|only| !permutation.name.contains(only.as_str())) {
            continue;
        }
        let turns = match permutation.item_bytes {
            1 => turns::<u8>(permutation)?,
            2 => turns::<u16>(permutation)?,
            4 => turns::<u32>(permutation)?,
            8 => turns::<u64>(permutation)?,
            _ => turns::<u128>(permutation)?,
        };
        let bytes = permutation.elements() * permutation.item_bytes;
        let bytes = bytes * (BYTES / bytes).max(1);
        let of = |peer: usize| {
            let pairs: Vec<_> = turns.iter().map(|turn| (turn[peer], turn[2])).collect();
            Ratios::new(&pairs, bytes)
        };
        let shown = |ratios: &Ratios| {
            let (low, high) = ratios.quartiles();
            format!("{:.2} ({low:.2} to {high:.2})", ratios.median())
        };
        let (plain, theirs) = (of(0), of(1));
        let rate = plain.gigabytes_per_second();
        writeln!(stdout(), "| {} | {rate:.1} | {} | {} |", permutation.name, shown(&plain), shown(&theirs))?;
        for (ratios, peer, what) in [(&plain, "memcpy", ""), (&theirs, "strided-perm", ", next to a library")]
        {
            results.add(&Measured {
                what: format!("permutation {}{what}", permutation.name),
                ours: ratios.gigabytes_per_second(),
                peer: Some((peer.to_owned(), ratios.yardstick_gigabytes_per_second())),
                unit: "GB/s",
                ratio: Some(ratios.median()),
                limit: None,
            });
        }
    }
    if only.is_none() {
        results.write()?;
    }
    Ok(())
}
