//! Texts that are nearly programs: errors are one-line messages, and parsed texts round-trip.

use std::sync::Arc;

use reshard_ops::rules::OpTable;
use reshard_program::{Graph, Program, ShardingSolver};

/// Valid programs that contain every form of a line.
const READ: &[&str] = &[
    "mesh x=4\na: bf16[8,8] P\nb, c = split(a, dim=1, size=4)\nd = ij,ij->i(b, c)\n",
    "mesh x=2\na: f32[4,4] S(0)\nw: f32[4,4] R|S(0)\ny = mm(a, w) by S(1); S(0) -> P\nl = sum(y)\ngradient l wrt w as g\n",
    "mesh x=2,y=2\nmesh far: z=4\nrepeat 2\na: f32[4,4] S(0),R\nb: S(1) on far = a # away\nend\nno_grad\nc = sum(a, dims=[0])\n",
    "mesh x=2\na: f32[4,4] S(0)\nb: inner S(0) = relu(a)\nc: inner bf16[4,4] S(0) = cast(b, dtype=bf16)\nd = neg(c)\n",
];

/// Fragments that are inserted at every position.
const WRITTEN: &[&str] = &[
    "mesh ",
    "gradient ",
    " wrt ",
    " as ",
    " by R; R -> R",
    "no_grad",
    "inner ",
    "f32[",
    "S(0)",
    "R|S(0)",
    "P(avg)",
    " = ",
    "mm(",
    "mk,kn->mn(",
    "->",
    "sum(",
    "dims=[",
    "\n",
    "repeat 3\n",
    "end\n",
    " on far",
    " ",
    ",",
    ":",
    "(",
    ")",
    "]",
    "#",
    "|",
    ";",
    "\"",
    "9",
    "99999999999999999999",
    "ä",
    "\u{202e}",
    "\u{7}",
    "\0",
    "\r",
];

#[test]
fn a_text_is_read_and_printed_or_refused_in_one_sentence() {
    let (mut read, mut refused) = (0, 0);
    let table = Arc::new(OpTable::standard());
    let graph = |text: &str| Graph::parse(Arc::clone(&table), text);
    for text in READ {
        assert!(graph(text).is_ok(), "{:?}", graph(text).err());
        let places: Vec<usize> = (0..=text.len()).filter(|&at| text.is_char_boundary(at)).collect();
        let written = places
            .iter()
            .flat_map(|&at| WRITTEN.iter().map(move |w| format!("{}{w}{}", &text[..at], &text[at..])));
        let left_out = places.windows(2).map(|at| format!("{}{}", &text[..at[0]], &text[at[1]..]));
        for changed in written.chain(left_out) {
            match graph(&changed) {
                Ok(same) => {
                    assert_eq!(graph(&same.to_string()).expect("a printed graph parses"), same, "{changed}");
                    read += 1;
                }
                Err(error) => {
                    let sentence = error.to_string();
                    assert!(!sentence.contains('\n') && !error.code().is_empty(), "{changed}: {sentence}");
                    refused += 1;
                }
            }
        }
    }
    assert!(read > 500 && refused > 5000, "{read} parsed, {refused} rejected");
}

#[test]
fn a_gradient_has_the_element_type_of_what_it_is_of() {
    let text = "mesh dp=2,tp=2\nx: f16[4,8] S(0),I\nw: f32[8,6] R,S(1)\nh = mm(x, w)\nloss = sum(h)\ngradient loss wrt w, x\n";
    let graph = Graph::parse(Arc::new(OpTable::standard()), text).unwrap();
    let program = ShardingSolver::new().solve(&graph).unwrap();
    for (of, gradient) in [("w", "dw"), ("x", "dx")] {
        let dtype = |name| program.get(program.value(name).unwrap()).dtype;
        assert_eq!(dtype(gradient), dtype(of), "{program}");
    }
    assert_eq!(program.to_string().parse::<Program>().unwrap().to_string(), program.to_string());
}

#[test]
fn only_what_stays_in_a_kernel_is_inner() {
    let inner = |lines: &str| {
        let program: Program = format!("mesh x=2\na: f32[4,4] S(0)\n{lines}").parse().unwrap();
        assert_eq!(program.to_string().parse::<Program>().unwrap().to_string(), program.to_string());
        let names = program.values().iter().filter(|value| value.inner).map(|value| value.name.clone());
        names.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(inner("b: inner S(0) = relu(a)\nc = neg(b)"), "b");
    // A result of the program is stored, and a value that is sent.
    assert_eq!(inner("b: inner S(0) = relu(a)\nc: inner S(0) = neg(b)"), "b");
    assert_eq!(inner("b: inner S(0) = relu(a)\nc: R = b\nd = neg(c)"), "");
    // A gradient takes it in another kernel.
    let graph = "mesh x=2\na: f32[4,4] S(0)\nb: inner S(0) = exp(a)\nc = neg(b)\ngradient c".parse().unwrap();
    let program = ShardingSolver::new().solve(&graph).unwrap();
    assert!(!program.get(program.value("b").unwrap()).inner, "{program}");
    for line in ["b: inner R via bf16 = a", "b: inner S(0) via bf16 = relu(a)", "b: inner _ = a"] {
        let text = format!("mesh x=2\na: f32[4,4] S(0)\n{line}\nc = neg(b)");
        assert!(text.parse::<Graph>().unwrap_err().to_string().contains("remove `inner`"), "{text}");
    }
}

#[test]
fn a_kernel_reads_each_operand_once_and_holds_no_bytes() {
    let report = |inner: &str| {
        let lines = format!("b: {inner}S(0) = sigmoid(a)\nc: {inner}S(0) = mul(a, b)\nd: S(0) = mul(a, c)");
        let program: Program = format!("mesh x=2\na: f32[1024,1024] S(0)|-\n{lines}").parse().unwrap();
        program.report(&reshard_program::ComputeRates::uniform())
    };
    let (plain, fused) = (report(""), report("inner "));
    // Of 2 MiB each at 1 TB/s: 8 operands, or a and d alone.
    let mib = f64::from(1 << 20) / 1e6;
    assert!((plain.compute_us.forward - 16.0 * mib).abs() < 1e-9, "{:?}", plain.compute_us);
    assert!((fused.compute_us.forward - 4.0 * mib).abs() < 1e-1, "{:?}", fused.compute_us);
    assert_eq!((plain.peak.bytes, fused.peak.bytes), (6 << 20, 4 << 20));
}
