//! Texts that are nearly programs: errors are one-line messages, and parsed texts round-trip.

use std::sync::Arc;

use reshard_ops::rules::OpTable;
use reshard_program::{Graph, Program, ShardingSolver};

/// Valid programs that contain every form of a line.
const READ: &[&str] = &[
    "mesh x=4\na: bf16[8,8] P\nb, c = split(a, dim=1, size=4)\nd = ij,ij->i(b, c)\n",
    "mesh x=2\na: f32[4,4] S(0)\nw: f32[4,4] R|S(0)\ny = mm(a, w) by S(1); S(0) -> P\nl = sum(y)\ngradient l wrt w as g\n",
    "mesh x=2,y=2\nmesh far: z=4\nrepeat 2\na: f32[4,4] S(0),R\nb: S(1) on far = a # away\nend\nno_grad\nc = sum(a, dims=[0])\n",
];

/// Fragments that are inserted at every position.
const WRITTEN: &[&str] = &[
    "mesh ",
    "gradient ",
    " wrt ",
    " as ",
    " by R; R -> R",
    "no_grad",
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
