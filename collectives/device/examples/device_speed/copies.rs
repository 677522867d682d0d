//! Copies with a promised speed: permutations, rows, and the packs and unpacks of plans.

use std::collections::BTreeMap;

use reshard_collectives::CompiledPlan;
use reshard_cuda::{Device, DeviceCopy, DeviceMemory};
use reshard_kernels::{CopySide, DType, LoopNest};
use reshard_layout::Mode;
use reshard_planner::{Objective, Planner};
use reshard_sharding::Mesh;

use super::{Clock, Result, shardings};

/// Minimum bytes that the memory of a device reads or writes at once.
const BURST: usize = 64;

/// A copy with a promised speed.
pub(crate) struct Case {
    name: String,
    nest: LoopNest,
    item: usize,
    /// The bytes that the memory has to read and write, divided by twice the copied bytes.
    moved: f32,
}

impl Case {
    fn new(name: impl Into<String>, nest: LoopNest, item: usize) -> Case {
        Case { name: name.into(), nest, item, moved: 1.0 }
    }
}

/// Permutes a row-major box.
fn permute(name: &str, extents: &[usize], order: &[usize], item: usize) -> Case {
    let strides = |order: &[usize]| {
        let mut strides = vec![0; extents.len()];
        let mut stride = 1i64;
        for &dim in order.iter().rev() {
            strides[dim] = stride;
            stride *= extents[dim] as i64;
        }
        strides
    };
    let straight: Vec<usize> = (0..extents.len()).collect();
    let (source, target) = (strides(&straight), strides(order));
    let modes = extents.iter().zip(source.into_iter().zip(target));
    let modes = modes.rev().map(|(&extent, strides)| Mode::new(extent as i64, strides));
    Case::new(name, LoopNest::new(0, 0, modes), item)
}

/// Returns rows of `elements` elements at arbitrary offsets.
///
/// The gaps between them make both sides equally misaligned, or differ by one element.
fn odd_rows(elements: usize, gap: usize, total: usize, item: usize) -> Case {
    let steps = ((elements + 16 / item + gap) as i64, elements as i64);
    let count = (total / item / elements) as i64;
    let nest = LoopNest::new(1, 1, [Mode::new(elements as i64, (1, 1)), Mode::new(count, steps)]);
    let how = if gap == 0 { "equal misalignment" } else { "different misalignment" };
    Case::new(format!("rows of {elements} elements, {how}"), nest, item)
}

/// Returns rows of `bytes` bytes, with gaps of the same size in the source.
fn rows(bytes: usize, total: usize, item: usize) -> Case {
    let (run, count) = ((bytes / item) as i64, (total / bytes) as i64);
    let nest = LoopNest::new(0, 0, [Mode::new(run, (1, 1)), Mode::new(count, (2 * run, run))]);
    // For rows shorter than a burst, whole bursts are read, including the gaps.
    let moved = if bytes < BURST { 1.5 } else { 1.0 };
    Case { moved, ..Case::new(format!("rows of {bytes} B"), nest, item) }
}

pub(crate) fn cases(total: usize) -> Vec<Case> {
    let mut all = Vec::new();
    for item in [4, 2] {
        let n = total / item;
        let side = 1usize << (n.ilog2() / 2);
        let nest = LoopNest::new(0, 0, [Mode::new(n as i64, (1, 1))]);
        all.push(Case::new("contiguous", nest, item));
        all.extend([4096, 512, 256, 128, 64, 32, 16].map(|bytes| rows(bytes, total / 2, item)));
        // Rows of odd lengths, with equal and with different misalignment.
        all.extend(
            [(4097, 0), (4097, 1), (513, 1), (129, 1)]
                .map(|(elements, gap)| odd_rows(elements, gap, total / 2, item)),
        );
        all.push(permute("2-D transpose", &[side, n / side], &[1, 0], item));
        all.push(permute("batched transpose", &[n >> 20, 1 << 10, 1 << 10], &[0, 2, 1], item));
        all.push(permute(
            "(0,2,1,3), 128 B inside",
            &[64, 64, n / 4096 / (128 / item), 128 / item],
            &[0, 2, 1, 3],
            item,
        ));
        all.push(permute("(2,1,0)", &[256, n >> 16, 256], &[2, 1, 0], item));
        all.push(permute("(3,0,1,2)", &[n >> 18, 64, 64, 64], &[3, 0, 1, 2], item));
    }
    all
}

/// The class of a copy, with its promised speed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Class {
    Long,
    Medium,
    /// Runs of 64 bytes and more of elements of 2 bytes, that begin and end within words of 4.
    Within,
    Float,
    Half,
    Rest,
}

impl Class {
    /// Returns the number of bytes that are contiguous on both sides, and the class.
    fn of(nest: &LoopNest, item: usize) -> Result<(usize, Class)> {
        let reduced = nest.reduce()?;
        let run = match reduced.modes.first() {
            Some(mode) if mode.stride == (1, 1) => mode.extent as usize * item,
            _ => item,
        };
        let transposed = run <= 16 && reduced.modes.iter().any(|mode| mode.stride.0 == (run / item) as i64);
        let bytes = reduced.scale(item)?;
        let rest = bytes.modes.iter().skip(1).map(|mode| mode.stride.0 | mode.stride.1);
        let within =
            rest.fold(run as i64 | bytes.source_offset | bytes.target_offset, |all, s| all | s) % 4 != 0;
        let class = match run {
            64.. if within => Class::Within,
            512.. => Class::Long,
            64..512 => Class::Medium,
            _ if transposed && item == 4 && reduced.modes.len() <= 3 => Class::Float,
            _ if transposed && item == 2 => Class::Half,
            _ => Class::Rest,
        };
        Ok((run, class))
    }

    fn name(self) -> &'static str {
        match self {
            Class::Long => "runs of 512 bytes and more",
            Class::Medium => "runs of 64 to 512 bytes",
            Class::Within => "runs of bf16 at odd offsets",
            Class::Float => "transposes of f32 in two dims and batched",
            Class::Half => "transposes of bf16",
            Class::Rest => "everything else",
        }
    }

    /// Returns the minimum ratio to the device's own copy of the same bytes.
    fn promise(self) -> f32 {
        match self {
            Class::Long | Class::Float => 0.9,
            Class::Medium | Class::Half => 0.8,
            Class::Within | Class::Rest => 0.7,
        }
    }
}

/// All ratios of a table, by class.
pub(crate) type Ratios = BTreeMap<Class, Vec<f32>>;

/// Prints the rows of the report; returns `true` if all promises hold.
pub(crate) fn report(what: &str, ratios: &mut Ratios) -> bool {
    let mut kept = true;
    for (class, ratios) in ratios {
        ratios.sort_by(f32::total_cmp);
        let promise = class.promise();
        let missed = ratios.iter().filter(|ratio| **ratio < promise).count();
        kept &= missed == 0;
        super::row(
            &format!("{what}: {}", class.name()),
            &format!("{promise:.2} of the device's own copy"),
            &format!(
                "{} cases, worst {:.2}, median {:.2}; {missed} missed",
                ratios.len(),
                ratios[0],
                ratios[ratios.len() / 2]
            ),
        );
    }
    kept
}

/// Returns the distinct packs and unpacks of rank 0 in all plans of a mesh.
pub(crate) fn packs(mesh: &Mesh, total: usize, dtype: DType) -> Result<Vec<Case>> {
    let item = dtype.element_bytes()?;
    let side = 1usize << ((total / item).ilog2() / 2);
    let shape = [side, total / item / side];
    let mut seen: BTreeMap<String, Case> = BTreeMap::new();
    let all = shardings(mesh, &shape);
    for (from, to) in all.iter().flat_map(|from| all.iter().map(move |to| (from, to))) {
        let plan = Planner::new().objective(Objective::Bytes).plan(from, to, dtype)?;
        let compiled = CompiledPlan::new(&plan, 0)?;
        for exchange in compiled.exchanges().filter(|exchange| exchange.communicates()) {
            let sends = exchange
                .sends()
                .iter()
                .flat_map(reshard_collectives::SendMessage::pieces)
                .map(|p| (CopySide::Source, p));
            let receives = exchange.receives().iter().flat_map(reshard_collectives::ReceiveMessage::pieces);
            for (side, piece) in sends.chain(receives.map(|p| (CopySide::Target, p))) {
                // On the other side the message is dense.
                let mut nest = match side {
                    CopySide::Source => piece.dense(CopySide::Target),
                    CopySide::Target => piece.dense(CopySide::Source),
                };
                (nest.source_offset, nest.target_offset) = (0, 0);
                let nest = nest.reduce()?;
                let what = if side == CopySide::Source { "pack" } else { "unpack" };
                let one = |mode: &Mode<(i64, i64)>| {
                    let (source, target) = mode.stride;
                    format!("{}:({source},{target})", mode.extent)
                };
                let modes: Vec<String> = nest.modes.iter().map(one).collect();
                let name = format!("{what} on {mesh}: {}", modes.join(" "));
                seen.entry(name.clone()).or_insert(Case::new(name, nest, item));
            }
        }
    }
    Ok(seen.into_values().collect())
}

/// The buffers of the copies.
pub(crate) struct Buffers {
    pub(crate) source: DeviceMemory,
    pub(crate) target: DeviceMemory,
}

/// Measures the cases, prints a table, and adds their ratios.
pub(crate) fn measure(
    device: &Device,
    buffers: &mut Buffers,
    cases: &[Case],
    ratios: &mut Ratios,
) -> Result<()> {
    println!(
        "| copy | element | run | kernel | bytes | GB/s | of the device's copy of the same bytes | promised | |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    let mut clock = Clock::new(device)?;
    for case in cases {
        let bytes = case.nest.len()? * case.item;
        let (run, class) = Class::of(&case.nest, case.item)?;
        let copy = DeviceCopy::new(&case.nest, case.item)?;
        let mut small = device.allocate(bytes)?;
        let base = device.allocate(bytes)?;
        let (ours, theirs) = clock
            .both(&mut || copy.run(device, &mut buffers.target, &buffers.source), &mut || {
                device.copy_all(&mut small, &base)
            })?;
        let kernel = copy.launches().first().map_or_else(String::new, |l| l.kernel.name());
        let (ratio, promised) = (theirs / ours * case.moved, class.promise());
        ratios.entry(class).or_default().push(ratio);
        let speed = 2.0 * bytes as f32 / ours / 1e6;
        let Case { name, item, .. } = case;
        let verdict = if ratio < promised { "missed" } else { "" };
        println!(
            "| {name} | {item} | {run} | {kernel} | {bytes} | {speed:.0} | {ratio:.2} | {promised:.2} | {verdict} |"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All cases have kernels and fit the buffers, and each class has some.
    #[test]
    fn cases_can_be_measured() {
        let total = 64 << 20;
        let mut classes = Vec::new();
        for case in cases(total) {
            let copy = DeviceCopy::new(&case.nest, case.item).unwrap();
            assert!(!copy.launches().is_empty(), "{}", case.name);
            let exact = reshard_kernels::PreparedCopy::new(&case.nest, case.item).unwrap();
            assert!(
                exact.source_range().end <= 2 * total && exact.target_range().end <= 2 * total,
                "{}",
                case.name
            );
            classes.push(Class::of(&case.nest, case.item).unwrap().1);
        }
        for class in [Class::Long, Class::Medium, Class::Within, Class::Float, Class::Half, Class::Rest] {
            assert!(classes.contains(&class), "{}", class.name());
        }
        let mesh = "x=2,y=2,z=2".parse().unwrap();
        assert!(packs(&mesh, total, DType::BF16).unwrap().len() > 10);
    }
}
