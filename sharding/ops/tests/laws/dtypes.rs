//! The element types that the ops of the table state: of all ops, and compared with PyTorch's or with those listed here.
//!
//! `data/torch_dtypes.txt` is printed by `scripts/torch_dtypes.py`: what PyTorch 2.15.0 accepts on the CPU, and the element
//! types of its results.

use std::collections::BTreeSet;

use reshard_kernels::DType;
use reshard_ops::rules::{OpCall, OpTable};

const TORCH: &str = include_str!("../data/torch_dtypes.txt");

/// The ops that PyTorch lacks, or that it has with other operands: names, and cases that all of them have.
#[rustfmt::skip]
const LISTED: &[(&str, &str)] = &[
    // Made in f32, or in i64 if they are integers.
    ("zeros ones full rand randn eye arange linspace logspace", "-> f32"),
    ("bartlett_window blackman_window hamming_window hann_window kaiser_window fftfreq rfftfreq", "-> f32"),
    ("randint randperm tril_indices triu_indices", "-> i64"),
    // Copied elements, and random numbers of an operand's type.
    ("copy conj real imag split_shards join_shards", "f32 -> f32; bf16 -> bf16; i32 -> i32; bool -> bool"),
    ("uniform exponential geometric log_normal cauchy random", "f32 -> f32; bf16 -> bf16; i64 -> i64"),
    // Other numbers of dims.
    ("avg_pool3d adaptive_avg_pool2d adaptive_avg_pool3d", "f32 -> f32; bf16 -> bf16; i64 -> !"),
    ("max_pool3d adaptive_max_pool2d adaptive_max_pool3d", "f32 -> f32; bf16 -> bf16; i64 -> i64"),
    ("max_pool3d_with_indices adaptive_max_pool2d_with_indices adaptive_max_pool3d_with_indices", "f32 -> f32,i64; bf16 -> bf16,i64"),
    ("lp_pool2d lp_pool3d", "f32 -> f32; bf16 -> bf16; i64 -> f32"),
    ("fractional_max_pool2d fractional_max_pool3d", "f32,f32 -> f32; bf16,f32 -> bf16; f32,i64 -> !"),
    ("fractional_max_pool2d_with_indices fractional_max_pool3d_with_indices", "f32,f32 -> f32,i64; bf16,f32 -> bf16,i64"),
    ("max_unpool2d max_unpool3d", "f32,i64 -> f32; bf16,i64 -> bf16; f32,f32 -> !"),
    ("conv3d convolution conv_transpose2d conv_transpose3d", "f32,f32 -> f32; bf16,bf16 -> bf16; f32,i64 -> !"),
    // Complex numbers as pairs.
    ("fft ifft irfft hfft stft istft", "f32 -> f32; i64 -> f32"),
    ("fma", "f32,f32,f32 -> f32; bf16,f32,bf16 -> f32; i64,i64,i64 -> i64"),
    ("matrix_sqrth", "f32 -> f32; i64 -> !"),
    ("polar_decomposition", "f32 -> f32,f32; i64 -> !"),
    // Normalisations with the numbers that their gradients take.
    ("native_layer_norm native_batch_norm native_group_norm", "f32,f32,f32 -> f32,f32,f32; bf16,f32,f32 -> bf16,bf16,bf16"),
    ("fused_rms_norm", "f32,f32 -> f32,f32; i64,f32 -> !"),
    ("weight_norm", "f32,f32 -> f32; i64,f32 -> !"),
    ("clip_by_norm", "f32 -> f32; bf16 -> bf16; i64 -> !"),
    ("scale_by_norm", "bf16,f32 -> bf16; i64,f32 -> !"),
    ("rotary", "bf16,f32,f32 -> bf16; f32,f32,f32 -> f32"),
    ("ctc_loss", "f32,i64,i64,i32 -> f32; f32,f32,i64,i64 -> !; i64,i64,i64,i64 -> !"),
    ("scaled_mm", "f8_e4m3,f8_e4m3,f32,f32 -> f8_e4m3; i8,i8,f32,f32 -> !"),
    ("grouped_mm", "bf16,bf16,i32 -> bf16; bf16,bf16,f32 -> !"),
    ("check_and_unscale", "f32,f32,f32 -> f32,f32; bf16,f32,f32 -> bf16,f32"),
    ("rnn_tanh_cell rnn_relu_cell gru_cell", "f32,f32,f32,f32,f32,f32 -> f32; i64,f32,f32,f32,f32,f32 -> !"),
    ("lstm_cell", "bf16,bf16,f32,bf16,bf16,bf16,bf16 -> bf16,f32"),
    // A parameter in bf16 with states in f32.
    ("sgd", "f32,f32 -> f32; bf16,f32 -> bf16"),
    ("sgd_momentum adagrad rmsprop lion", "bf16,bf16,f32 -> bf16,f32"),
    ("adam adamw adamax nadam radam adadelta rprop", "bf16,bf16,f32,f32 -> bf16,f32,f32; i64,f32,f32,f32 -> !"),
    ("adam_amsgrad", "bf16,bf16,f32,f32,f32 -> bf16,f32,f32,f32"),
];

/// Operand types, and the result types; `None` if the operands must be rejected.
type Case = (Vec<DType>, Option<Vec<DType>>);

fn dtypes(text: &str) -> Vec<DType> {
    text.split(',').filter(|name| !name.trim().is_empty()).map(|name| name.trim().parse().unwrap()).collect()
}

fn cases(text: &str) -> impl Iterator<Item = Case> + '_ {
    text.split(';').map(move |case| {
        let (operands, results) = case.split_once("->").unwrap_or_else(|| panic!("{text}"));
        (dtypes(operands), (results.trim() != "!").then(|| dtypes(results)))
    })
}

/// The lines of PyTorch's file: a call, and its cases.
fn torch() -> impl Iterator<Item = (OpCall, &'static str)> {
    TORCH.lines().map(|line| {
        let (call, cases) = line.split_once(": ").unwrap();
        (call.parse().unwrap(), cases)
    })
}

/// The types that the table gives to the results of a call; `None` if it rejects the operands.
fn ours(table: &OpTable, call: &OpCall, operands: &[DType], outputs: usize) -> Option<Vec<DType>> {
    table.checked_dtypes(call, operands, outputs, &|i| format!("x{i}")).ok()
}

#[test]
fn every_op_states_its_element_types_and_has_expected_ones() {
    let table = OpTable::standard();
    let named = torch().map(|(call, _)| call.name().unwrap().to_owned());
    let listed = LISTED.iter().flat_map(|(names, _)| names.split(' ').map(ToOwned::to_owned));
    let expected: BTreeSet<String> = named.chain(listed).collect();
    let names: BTreeSet<String> = table.names().map(ToOwned::to_owned).collect();
    assert_eq!(expected, names, "ops with expected element types, and ops of the table");
    let silent: Vec<&str> = table.names().filter(|name| table.dtypes(name).is_none()).collect();
    assert!(silent.is_empty(), "state the element types of {silent:?} in rules/dtypes/standard.rs");
}

#[test]
fn element_types_are_those_listed() {
    let table = OpTable::standard();
    for (names, text) in LISTED {
        for (call, (operands, results)) in
            names.split(' ').flat_map(|name| cases(text).map(move |case| (OpCall::new(name), case)))
        {
            let outputs = results.as_ref().map_or(1, Vec::len);
            assert_eq!(ours(&table, &call, &operands, outputs), results, "{call} of {operands:?}");
        }
    }
}

/// Returns `true` for operands and results of PyTorch of which ours may differ.
type Differs = fn(&[DType], &[DType]) -> bool;

fn has_integers(operands: &[DType], _: &[DType]) -> bool {
    operands.iter().any(|dtype| dtype.is_integral())
}

/// The cases in which the table gives other results than PyTorch, or rejects the operands.
const DIFFERENCES: &[(&str, &str, Differs)] = &[
    (
        "sum nansum prod cumsum cumprod trace vander",
        "integers keep their type, as in JAX",
        |operands, results| matches!(operands, [DType::U8 | DType::I32]) && results == [DType::I64],
    ),
    ("all any", "PyTorch gives u8 for u8", |operands, _| operands == [DType::U8]),
    ("where", "PyTorch takes bytes as truth values", |operands, _| operands[0] == DType::U8),
    ("alpha_dropout", "PyTorch rounds the constant of dropped integers", has_integers),
    ("avg_pool1d avg_pool2d", "PyTorch rounds means of integers", has_integers),
    ("embedding_bag", "PyTorch takes the table and the indices in both orders", |operands, _| {
        operands[0] == DType::I64 && !operands[1].is_integral()
    }),
    ("index_put", "PyTorch takes a mask as an index", |operands, _| operands[1] == DType::Bool),
    ("solve_triangular", "PyTorch casts the right-hand side on the CPU", |operands, _| {
        operands[1].is_integral()
    }),
    ("triplet_margin_loss", "PyTorch rounds the distances of integers to f32 first", has_integers),
    (
        "binary_cross_entropy_with_logits",
        "PyTorch's result depends on the order of two real types",
        |operands, _| operands == [DType::F32, DType::BF16],
    ),
    ("poisson_nll_loss", "PyTorch computes the exponentials of integers in f32 first", |operands, _| {
        operands[0].is_integral() && operands[1] == DType::BF16
    }),
    // One operand of integers or truth values and one of bf16: a part of the loss is f32.
    ("cosine_embedding_loss", "PyTorch computes the squares of integers in f32 first", |operands, _| {
        operands[0].is_integral() != operands[1].is_integral() && operands[..2].contains(&DType::BF16)
    }),
];

#[test]
fn element_types_are_those_of_torch() {
    let table = OpTable::standard();
    let (mut wrong, mut compared, mut idle) =
        (Vec::new(), 0, (0..DIFFERENCES.len()).collect::<BTreeSet<usize>>());
    for (call, text) in torch() {
        for (operands, results) in cases(text) {
            let results = results.unwrap();
            let made = ours(&table, &call, &operands, results.len());
            compared += 1;
            if made.as_ref() == Some(&results) {
                continue;
            }
            let of_call = |(names, _, differs): &(&str, &str, Differs)| {
                names.split(' ').any(|name| Some(name) == call.name()) && differs(&operands, &results)
            };
            match DIFFERENCES.iter().position(of_call) {
                Some(known) => {
                    idle.remove(&known);
                }
                None => {
                    wrong
                        .push(format!("{call} of {operands:?} is {results:?} in PyTorch, and {made:?} here"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let idle: Vec<&str> = idle.into_iter().map(|i| DIFFERENCES[i].0).collect();
    assert!(idle.is_empty(), "no longer different: {idle:?}");
    println!("{compared} cases");
}
