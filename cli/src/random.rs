//! `reshard random`: the random numbers that a rank draws, which are those of the whole tensor at the indices that it holds.

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

/// How many elements are printed where nobody says.
const USUAL: usize = 64;

/// More elements than this are not printed.
const MOST: usize = 1 << 20;

/// Arguments of `reshard random`.
#[derive(Debug, Args)]
pub(crate) struct RandomArgs {
    #[command(flatten)]
    request: Request,
    /// Answer one JSON request a line from stdin, like {"mesh":"dp=2","shape":[4,6],"placements":"S(1)","rank":1,"draw":"normal"}
    #[arg(long, conflicts_with = "Request")]
    batch: bool,
    #[command(flatten)]
    pub(crate) format: Format,
}

/// One question, from flags or from a line.
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
    /// Whose elements
    #[arg(long)]
    rank: Option<usize>,
    /// The seed of the key (0)
    #[arg(long)]
    seed: Option<u64>,
    /// The key itself, like threefry2x32:00000000,0000002a, in place of a seed and a generator
    #[arg(long)]
    key: Option<String>,
    /// bits, uniform, uniform(-1,1), normal, normal(0,0.02), truncated_normal(-2,2), bernoulli(0.1), randint(0,10), exponential or gumbel
    #[arg(long)]
    draw: Option<String>,
    /// The element type (f32)
    #[arg(long)]
    dtype: Option<String>,
    /// threefry (JAX's) or philox (that of torch.func._random)
    #[arg(long)]
    generator: Option<String>,
    /// How many elements are printed at most (64)
    #[arg(long)]
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
    /// How many elements the rank holds.
    elements: usize,
    /// The first of them, in local order.
    values: Values,
}

/// Elements as numbers, each as short as it reads back.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Values {
    Bool(Vec<bool>),
    Integers(Vec<i128>),
    /// f16 and bf16 too.
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
            "ranks of `{sharding}` hold terms, and random numbers are of tensors: say R in place of P, or scatter them"
        );
        return Err(CliError::refused("partial", message));
    }
    let limit = request.limit.unwrap_or(USUAL);
    if limit > MOST {
        let message = format!("{limit} elements are asked for, and at most {MOST} are printed");
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

/// The key that was given, or that of a seed.
fn key(request: &Request) -> Result<Key, CliError> {
    let Some(key) = &request.key else {
        let generator = request.generator.as_deref().map_or(Ok(Generator::default()), str::parse)?;
        return Ok(Key::with(generator, request.seed.unwrap_or(0)));
    };
    if request.seed.is_some() || request.generator.is_some() {
        let message =
            "the key says its generator and has no seed: say either `key` or `seed` and `generator`";
        return Err(CliError::refused("usage", message));
    }
    Ok(key.parse()?)
}

/// The numbers of native bytes; of a dtype that nothing is drawn of there are none.
fn values(dtype: DType, bytes: &[u8]) -> Values {
    /// Elements of one type, each made a number.
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
    /// Each as it is printed.
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
    /// A line that says what it is, and one for each row of the shard.
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
