//! `reshard random`: the random numbers on a rank: those of the global tensor at the indices that it holds.

use clap::Args;
use core::fmt::Write;
use half::{bf16, f16};
use reshard_kernels::DType;
use reshard_kernels::random::{Draw, Generator, Key, fill};
use reshard_sharding::Sharding;
use serde::{Deserialize, Serialize};

use super::arguments::Format;
use super::arguments::MeshArg;
use super::arguments::PlacementsArg;
use super::arguments::ShapeArg;
use super::console::Console;
use super::error::CliError;
use super::{batch, element, required};

/// The number of elements that are printed by default.
const USUAL: usize = 64;

/// More elements than this are not printed.
const MOST: usize = 1 << 20;

/// Arguments of `reshard random`.
#[derive(Debug, Args)]
pub(crate) struct RandomArgs {
    #[command(flatten)]
    request: Request,
    /// Answer one JSON request per line of stdin, like
    /// {"mesh":"dp=2","shape":[4,6],"placements":"S(1)","rank":1,"draw":"normal"}
    #[arg(long, conflicts_with = "Request")]
    batch: bool,
    #[command(flatten)]
    pub(crate) format: Format,
}

/// One request, from flags or from a line.
#[derive(Debug, Args, Deserialize)]
#[group(args = ["mesh", "shape", "placements", "rank", "seed", "key", "draw", "dtype", "generator", "limit"])]
#[serde(deny_unknown_fields)]
struct Request {
    #[command(flatten)]
    mesh: MeshArg,
    #[command(flatten)]
    shape: ShapeArg,
    #[command(flatten)]
    placements: PlacementsArg,
    /// Rank whose elements to print
    #[arg(long, value_parser = crate::whole::whole::<usize>, allow_negative_numbers = true)]
    rank: Option<usize>,
    /// Seed of the key [default: 0]
    #[arg(long, value_parser = crate::whole::whole::<u64>, allow_negative_numbers = true)]
    seed: Option<u64>,
    /// Key, like threefry2x32:00000000,0000002a, instead of --seed and --generator
    #[arg(long)]
    key: Option<String>,
    /// Distribution: bits, uniform, uniform(-1,1), normal, normal(0,0.02), truncated_normal(-2,2),
    /// bernoulli(0.1), randint(0,10), exponential or gumbel
    #[arg(long)]
    draw: Option<String>,
    /// Dtype of the elements [default: f32]
    #[arg(long)]
    dtype: Option<String>,
    /// Generator: threefry (as in JAX) or philox (as in torch.func._random) [default: threefry]
    #[arg(long)]
    generator: Option<String>,
    /// Print the first N elements [default: 64]
    #[arg(long, value_name = "N", value_parser = crate::whole::whole::<usize>, allow_negative_numbers = true)]
    limit: Option<usize>,
}

/// The answer.
#[derive(Debug, Serialize)]
struct Answer {
    key: String,
    draw: String,
    dtype: DType,
    rank: usize,
    local_shape: Vec<usize>,
    /// The number of elements of the rank's shard.
    elements: usize,
    /// The first of them, in local order.
    values: Values,
}

/// Elements as numbers, each as the shortest text that round-trips.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Values {
    Bool(Vec<bool>),
    Integers(Vec<i128>),
    /// Elements of f32, f16 and bf16.
    Singles(Vec<f32>),
    Doubles(Vec<f64>),
}

/// Answers the flags, or every line of stdin.
pub(crate) fn run(args: &RandomArgs, console: &mut Console<'_>) -> Result<(), CliError> {
    if args.batch {
        return batch::run(console, answer);
    }
    let answer = answer(&args.request)?;
    if args.format.json { console.print_json(&answer) } else { console.print(&answer.text()) }
}

fn answer(request: &Request) -> Result<Answer, CliError> {
    let mesh = request.mesh.or_inlined([request.placements.text()])?;
    let shape = request.shape.required()?;
    let sharding = Sharding::parse(&mesh, &shape, request.placements.required()?)?;
    let rank = *required("rank", request.rank.as_ref())?;
    let draw: Draw = required("draw", request.draw.as_deref())?.parse()?;
    let dtype = element::dtype(request.dtype.as_deref())?;
    let key = key(request)?;
    if sharding.is_partial() {
        let message = format!(
            "random numbers need a sharding without partial values, not `{sharding}`; use `R` or `S(d)` in place of `P`"
        );
        return Err(CliError::refused("partial", message));
    }
    let limit = request.limit.unwrap_or(USUAL);
    if limit > MOST {
        let message = format!("`limit` is {limit} elements, above the maximum of {MOST}");
        return Err(CliError::refused("too_many_elements", message));
    }
    let region = sharding.region(rank)?;
    let elements = region.numel();
    let mut left = limit.min(elements) as u64;
    let mut runs = Vec::new();
    for run in region.runs(&shape)? {
        if left == 0 {
            break;
        }
        runs.push(run.take(left));
        left -= run.len.min(left);
    }
    let mut bytes = vec![0; limit.min(elements) * dtype.element_bytes()?];
    fill(&key, draw, dtype, &mut bytes, &shape, runs)?;
    Ok(Answer {
        key: key.to_string(),
        draw: draw.to_string(),
        dtype,
        rank,
        local_shape: region.local_shape().to_vec(),
        elements,
        values: values(dtype, &bytes),
    })
}

/// Returns the given key, or that of a seed.
fn key(request: &Request) -> Result<Key, CliError> {
    let Some(key) = &request.key else {
        let generator = request.generator.as_deref().map_or(Ok(Generator::default()), str::parse)?;
        return Ok(Key::with(generator, request.seed.unwrap_or(0)));
    };
    if request.seed.is_some() || request.generator.is_some() {
        let message =
            "`key` includes the generator and the seed; give either `key`, or `seed` and `generator`";
        return Err(CliError::refused("usage", message));
    }
    Ok(key.parse()?)
}

/// Converts native bytes to numbers; none for a dtype without random numbers.
fn values(dtype: DType, bytes: &[u8]) -> Values {
    /// Converts each element to a number.
    fn each<const N: usize, T>(bytes: &[u8], number: impl Fn([u8; N]) -> T) -> Vec<T> {
        bytes.as_chunks::<N>().0.iter().map(|element| number(*element)).collect()
    }
    macro_rules! integers {
        ($t:ty) => {
            Values::Integers(each(bytes, |element| i128::from(<$t>::from_ne_bytes(element))))
        };
    }
    match dtype {
        DType::Bool => Values::Bool(each(bytes, |[element]| element != 0)),
        DType::U8 => integers!(u8),
        DType::I8 => integers!(i8),
        DType::U16 => integers!(u16),
        DType::I16 => integers!(i16),
        DType::U32 => integers!(u32),
        DType::I32 => integers!(i32),
        DType::U64 => integers!(u64),
        DType::I64 => integers!(i64),
        DType::F16 => Values::Singles(each(bytes, |element| f16::from_ne_bytes(element).to_f32())),
        DType::BF16 => Values::Singles(each(bytes, |element| bf16::from_ne_bytes(element).to_f32())),
        DType::F32 => Values::Singles(each(bytes, f32::from_ne_bytes)),
        DType::F64 => Values::Doubles(each(bytes, f64::from_ne_bytes)),
        DType::F4
        | DType::F6_E2M3
        | DType::F6_E3M2
        | DType::F8_E5M2
        | DType::F8_E4M3
        | DType::F8_E8M0
        | DType::F8_E4M3FNUZ
        | DType::F8_E5M2FNUZ
        | DType::C64 => Values::Integers(Vec::new()),
    }
}

impl Values {
    /// Returns the printed form of each element.
    fn texts(&self) -> Vec<String> {
        match self {
            Values::Bool(values) => values.iter().map(bool::to_string).collect(),
            Values::Integers(values) => values.iter().map(i128::to_string).collect(),
            Values::Singles(values) => values.iter().map(f32::to_string).collect(),
            Values::Doubles(values) => values.iter().map(f64::to_string).collect(),
        }
    }
}

impl Answer {
    /// Prints a header line, and one line for each row of the shard.
    fn text(&self) -> String {
        let Self { key, draw, dtype, rank, local_shape, elements, .. } = self;
        let texts = self.values.texts();
        let mut text = format!("rank {rank}  {dtype}{local_shape:?}  {draw}  {key}\n");
        for row in texts.chunks(local_shape.last().map_or(1, |&n| n.max(1))) {
            text.push_str(&row.join(" "));
            text.push('\n');
        }
        if texts.len() < *elements {
            let _ = writeln!(text, "and {} more", elements - texts.len());
        }
        text
    }
}
