//! The shards of the ranks before and after a plan, as letters from real runs: `[A] / [B] => [A,B] / [A,B]`.
//!
//! A letter is a part that all ranks hold whole or not at all. `+` means that a rank holds a partial value
//! and the sum is pending, `0+` a partial value that is zero. A plan is run twice by threads, with numbers
//! that identify every element's part and its partial values:
//!
//! ```text
//! first     the number of the part + 1, in every partial   the sum is the number times the partials included
//! second    2^j in partial value j                         the sum is the set of partials
//! ```

use std::cmp::Ordering;

use half::{bf16, f16};
use reshard_collectives::{Element, TrafficLog, threads};
use reshard_kernels::DType;
use reshard_planner::Plan;
use reshard_sharding::internal::ranks_of_both;
use reshard_sharding::{ReduceOp, Sharding};

use crate::limits::titled;
use crate::plan::has_few_ranks;
use crate::scene::{Bar, Cell, Grid, Lane, Lanes, Part, Scene};

/// The reason why nothing was run.
type Refusal = String;

const MOST_RANKS: usize = 16;
const MOST_ELEMENTS: usize = 1 << 20;
const MOST_PARTS: usize = 26;
const MOST_TERMS: usize = 7;

/// Numbers that can be elements: whole ones up to 255.
trait Letter: Element + PartialOrd {
    fn of(number: u16) -> Self;

    fn number(self) -> Option<u16> {
        (0..256).find(|&number| Self::of(number).partial_cmp(&self) == Some(Ordering::Equal))
    }
}

macro_rules! letters {
    ($($t:ty),*) => {$(
        impl Letter for $t {
            fn of(number: u16) -> Self {
                number as $t
            }
        }
    )*};
}
letters!(u8, u16, i16, u32, i32, u64, i64, f32, f64);

impl Letter for f16 {
    fn of(number: u16) -> Self {
        f16::from_f32(number.into())
    }
}

impl Letter for bf16 {
    fn of(number: u16) -> Self {
        bf16::from_f32(number.into())
    }
}

/// The shards of each rank before and after, in words, and the transferred bytes.
struct Ran {
    before: Vec<Option<String>>,
    after: Vec<Option<String>>,
    trace: TrafficLog,
}

/// Returns the parts of the tensor: of each dim, where they begin.
fn parts(plan: &Plan) -> Result<Vec<Vec<usize>>, Refusal> {
    let failed = |error: reshard_sharding::Error| error.to_string();
    let mut borders: Vec<Vec<usize>> = vec![vec![0]; plan.from().shape().len()];
    for sharding in [plan.from(), plan.to()] {
        for rank in sharding.mesh().ranks() {
            for (dim, list) in sharding.region(rank).map_err(failed)?.dims.iter().enumerate() {
                borders[dim].extend(list.iter().flat_map(|part| [part.start, part.start + part.len]));
            }
        }
    }
    for (dim, &len) in borders.iter_mut().zip(plan.from().shape()) {
        dim.sort_unstable();
        dim.dedup();
        dim.retain(|&border| border < len);
    }
    let all: usize = borders.iter().map(|dim| dim.len().max(1)).product();
    if all > MOST_PARTS {
        return Err(format!("{all} parts need more than {MOST_PARTS} letters"));
    }
    Ok(borders)
}

/// Returns the number of the part of every element that a rank holds, in local order.
fn parts_held(sharding: &Sharding, rank: usize, borders: &[Vec<usize>]) -> Result<Vec<usize>, Refusal> {
    let region = sharding.region(rank).map_err(|error| error.to_string())?;
    let mut numbers = vec![0];
    for (dim, borders) in borders.iter().enumerate() {
        let indices = region.indices(dim).map_err(|error| error.to_string())?;
        let own: Vec<usize> = indices
            .map(|index| borders.partition_point(|&border| border <= index).saturating_sub(1))
            .collect();
        let outer = std::mem::take(&mut numbers);
        numbers = outer.iter().flat_map(|&n| own.iter().map(move |own| n * borders.len() + own)).collect();
    }
    Ok(numbers)
}

/// Returns the index of the partial value that a rank holds, and the number of partial values.
fn term(sharding: &Sharding, rank: usize) -> (usize, usize) {
    let mesh = sharding.mesh();
    let coordinate = mesh.coordinate(rank).unwrap_or_default();
    sharding.partial().iter().fold((0, 1), |(number, count), of| {
        let digit = of.sub.digit(coordinate[of.sub.axis], mesh.axes()[of.sub.axis].size()).unwrap_or(0);
        (number * of.sub.size + digit, count * of.sub.size)
    })
}

/// Returns the letters of the elements of a rank, each once: `[A,B+]`.
fn words<T: Letter>(codes: &[T], sets: &[T], terms: usize, is_partial: bool) -> String {
    let mut words: Vec<String> = Vec::new();
    for (code, set) in codes.iter().zip(sets) {
        let word = match (code.number(), set.number()) {
            (Some(0), Some(0)) if is_partial => "0+".to_owned(),
            (Some(code), Some(set)) if set > 0 && code % (set.count_ones() as u16) == 0 && code > 0 => {
                let number = code / set.count_ones() as u16 - 1;
                let letter = char::from(b'A' + (number % 26) as u8);
                let whole = set.count_ones() as usize == terms;
                match (is_partial, whole) {
                    (true, _) => format!("{letter}+"),
                    (false, true) => letter.to_string(),
                    // No correct plan leaves this: some of the partial values.
                    (false, false) => format!("{letter}?"),
                }
            }
            (Some(_) | None, _) => "?".to_owned(),
        };
        if !words.contains(&word) {
            words.push(word);
        }
    }
    format!("[{}]", words.join(","))
}

fn run_as<T: Letter>(plan: &Plan) -> Result<Ran, Refusal> {
    let (from, to) = (plan.from(), plan.to());
    let borders = parts(plan)?;
    let ranks = ranks_of_both(from.mesh(), to.mesh());
    let terms = term(from, from.mesh().min_rank()).1;
    if terms > MOST_TERMS {
        return Err(format!("{terms} partial values per element are more than {MOST_TERMS}"));
    }
    let of_ranks = |element: &dyn Fn(usize, usize) -> u16| -> Result<Vec<Vec<T>>, Refusal> {
        let shard = |rank: usize| {
            let number = term(from, rank).0;
            let parts = parts_held(from, rank, &borders)?;
            Ok(parts.into_iter().map(|part| T::of(element(part, number))).collect())
        };
        from.mesh().ranks().map(shard).collect()
    };
    let codes = of_ranks(&|part, _| part as u16 + 1)?;
    let sets = of_ranks(&|_, number| 1 << number)?;
    let run = |shards: &[Vec<T>]| threads::redistribute(plan, shards).map_err(|error| error.to_string());
    let ((codes_after, trace), (sets_after, _)) = (run(&codes)?, run(&sets)?);
    let said = |sharding: &Sharding, codes: &[Vec<T>], sets: &[Vec<T>]| -> Vec<Option<String>> {
        let of = |rank: &usize| {
            let at = sharding.mesh().ranks().position(|one| one == *rank)?;
            Some(words(codes.get(at)?, sets.get(at)?, terms, sharding.is_partial()))
        };
        ranks.iter().map(of).collect()
    };
    Ok(Ran { before: said(from, &codes, &sets), after: said(to, &codes_after, &sets_after), trace })
}

fn run(plan: &Plan) -> Result<Ran, Refusal> {
    let ranks = if has_few_ranks(plan) { plan.ranks().len() } else { usize::MAX };
    if ranks > MOST_RANKS {
        return Err(format!("it has more than {MOST_RANKS} ranks"));
    }
    let most = plan.from().max_local_numel().max(plan.to().max_local_numel()).saturating_mul(ranks);
    if most > MOST_ELEMENTS {
        return Err(format!("{most} elements of all ranks are more than {MOST_ELEMENTS}"));
    }
    let sums = |sharding: &Sharding| sharding.partial().iter().all(|term| term.op == ReduceOp::Sum);
    if !sums(plan.from()) || !sums(plan.to()) {
        return Err("only partial values of sums have letters".to_owned());
    }
    match plan.dtype() {
        DType::U8 => run_as::<u8>(plan),
        DType::U16 => run_as::<u16>(plan),
        DType::I16 => run_as::<i16>(plan),
        DType::U32 => run_as::<u32>(plan),
        DType::I32 => run_as::<i32>(plan),
        DType::U64 => run_as::<u64>(plan),
        DType::I64 => run_as::<i64>(plan),
        DType::F16 => run_as::<f16>(plan),
        DType::BF16 => run_as::<bf16>(plan),
        DType::F32 => run_as::<f32>(plan),
        DType::F64 => run_as::<f64>(plan),
        DType::Bool
        | DType::F4
        | DType::F6_E2M3
        | DType::F6_E3M2
        | DType::I8
        | DType::F8_E5M2
        | DType::F8_E4M3
        | DType::F8_E8M0
        | DType::F8_E4M3FNUZ
        | DType::F8_E5M2FNUZ
        | DType::C64 => Err(format!("letters are not supported for elements of {}", plan.dtype())),
    }
}

/// Draws the shards of every rank before and after a plan, and of its gradients, as letters.
///
/// Threads run both plans.
///
/// Plans of more than 16 ranks, 26 parts, 7 partial values or 2^20 elements of all ranks are not run, and the
/// scene gives the reason.
///
/// ```
/// use reshard_draw::local_notation;
/// use reshard_kernels::DType;
/// use reshard_planner::Planner;
/// use reshard_sharding::Sharding;
/// let mesh = "x=2".parse()?;
/// let of = |text: &str| Sharding::parse(&mesh, &[4], text);
/// let planner = Planner::new();
/// let (forward, backward) = (planner.plan(&of("S(0)")?, &of("R")?, DType::F32)?, planner.plan(&of("P")?, &of("S(0)")?, DType::F32)?);
/// let text = local_notation(&forward, Some(&backward)).text(false);
/// assert!(text.contains("[A] / [B] => [A,B] / [A,B]") && text.contains("[A] / [B] <= [A+,B+] / [A+,B+]"), "{text}");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn local_notation(forward: &Plan, backward: Option<&Plan>) -> Scene {
    let title = format!("shards of all ranks: {} => {}", titled(forward.from()), titled(forward.to()));
    let about =
        "Each rank in turn, before => after, in letters; + marks partial values, <= is backward.".to_owned();
    let mut scene = Scene::new(title, about);
    for (plan, arrow) in [(Some(forward), "=>"), (backward, "<=")] {
        let Some(plan) = plan else { continue };
        let ran = match run(plan) {
            Ok(ran) => ran,
            Err(why) => {
                scene = scene.noted(format!("not run: {why}"));
                continue;
            }
        };
        let (left, right) = if arrow == "=>" { (ran.before, ran.after) } else { (ran.after, ran.before) };
        let joined = |words: &[Option<String>]| {
            let words: Vec<&str> = words.iter().map(|word| word.as_deref().unwrap_or("-")).collect();
            words.join(" / ")
        };
        let line = format!("{} {arrow} {}", joined(&left), joined(&right));
        scene.about.extend([" ", &line, "."]);
        if plan.ranks().len() <= 8 {
            scene.parts.push(Part::Line(line));
        }
        let cell = |word: &Option<String>| Cell::plain(word.as_deref().unwrap_or("-"));
        let rows = plan.ranks().into_iter().zip(left.iter().zip(&right)).map(|(rank, (left, right))| {
            let name = Cell { ranks: vec![rank], ..Cell::hued(format!("rank {rank}"), rank) };
            vec![name, cell(left), Cell::plain(arrow), cell(right)]
        });
        let heads = if arrow == "=>" {
            ["", "before", "", "after"]
        } else {
            ["", "gradient of before", "", "gradient of after"]
        };
        scene.parts.push(Part::Grid(Grid::table(&heads, rows.collect())));
    }
    scene.noted("letters are parts of the tensor, + marks partial values; from a run by threads")
}

/// Draws the bytes that a plan predicts next to those transferred when threads run it, rank by rank.
///
/// ```
/// use reshard_draw::measured;
/// use reshard_kernels::DType;
/// use reshard_planner::Planner;
/// use reshard_sharding::Sharding;
/// let mesh = "x=2".parse()?;
/// let (from, to) = (Sharding::parse(&mesh, &[4], "S(0)")?, Sharding::parse(&mesh, &[4], "R")?);
/// let text = measured(&Planner::new().plan(&from, &to, DType::F32)?).text(false);
/// assert!(text.contains("predicted 8 B") && text.contains("rank 0 |"), "{text}");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn measured(plan: &Plan) -> Scene {
    let title = "bytes received: predicted and measured".to_owned();
    let trace = match run(plan) {
        Ok(ran) => ran.trace,
        Err(why) => return Scene::new(title, "Nothing was run.").noted(format!("not run: {why}")),
    };
    let lanes: Vec<Lane> = plan
        .ranks()
        .into_iter()
        .map(|rank| {
            let mut at = 0.0;
            let bars = (0..plan.steps().len()).filter_map(|step| {
                let bytes = trace.received(|hop| hop.receiver == rank && hop.step == step) as f64;
                let from = at;
                at += bytes;
                let text = format!("step {}", step + 1);
                (bytes > 0.0).then_some(Bar { from, to: at, kind: step % 8, text, is_strong: false })
            });
            let bars = bars.collect();
            let end = format!("{} B", trace.received_by(rank));
            Lane { label: format!("rank {rank}"), end, bars, ranks: vec![rank] }
        })
        .collect();
    let predicted = plan.received_bytes();
    let about = format!(
        "The plan predicts that no rank receives more than {predicted} B; the worst rank received {} B.",
        trace.worst_received()
    );
    let letters = "abcdefgh".chars();
    let lanes = Lanes {
        unit: "B".to_owned(),
        until: predicted.max(trace.worst_received()) as f64,
        kinds: (0..plan.steps().len().min(8))
            .zip(letters)
            .map(|(at, c)| (format!("step {}", at + 1), c))
            .collect(),
        lanes,
        marks: vec![(predicted as f64, format!("predicted {predicted} B"))],
    };
    Scene::new(title, about).with(Part::Lanes(lanes))
}
