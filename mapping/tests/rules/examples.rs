//! Twelve mappings of real models, on small tensors.

use reshard_mapping::{Axis, LocalParts, Mapping, SourceTensor};

use crate::definition;
use crate::tensor::{Tensors, run, sources};

/// The name, the lines and the sources of a mapping.
type Example = (&'static str, &'static str, Vec<(&'static str, &'static [usize])>);

/// Returns the examples; those with a second mapping, applied to the results of the first, have two texts.
pub(crate) fn examples() -> Vec<Example> {
    vec![
        (
            "fused attention",
            "d.*.qkv = 4 *.q_proj.weight + 1 *.k_proj.weight + 1 *.v_proj.weight",
            vec![("a.q_proj.weight", &[8, 3]), ("a.k_proj.weight", &[2, 3]), ("a.v_proj.weight", &[2, 3])],
        ),
        (
            "parts with placements",
            "model.layers.*.qkv_proj.weight = *.q_proj.weight | *.k_proj.weight | *.v_proj.weight\n\
             drop lm_head.weight == model.embed_tokens.weight",
            vec![
                ("0.q_proj.weight", &[8, 3]),
                ("0.k_proj.weight", &[4, 3]),
                ("0.v_proj.weight", &[4, 3]),
                ("model.embed_tokens.weight", &[5, 3]),
                ("lm_head.weight", &[5, 3]),
            ],
        ),
        (
            "repeated heads",
            "s.*.qkv = *.q + rearrange(*.k, '(g d) e -> (g r d) e', g=2, r=2) + \
             rearrange(*.v, '(g d) e -> (g r d) e', g=2, r=2) by 4",
            vec![("a.q", &[16, 3]), ("a.k", &[4, 3]), ("a.v", &[4, 3])],
        ),
        (
            "query groups",
            "d.*.linear_qkv.weight = 4 *.q.weight + 1 *.k.weight + 1 *.v.weight by 8",
            vec![("a.q.weight", &[64, 3]), ("a.k.weight", &[16, 3]), ("a.v.weight", &[16, 3])],
        ),
        (
            "separate heads",
            "m.*.q.* + m.*.k.* + m.*.v.* = gpt_neox.*.query_key_value.* by 12",
            vec![("gpt_neox.3.query_key_value.weight", &[72, 4]), ("gpt_neox.3.query_key_value.bias", &[72])],
        ),
        (
            "gate and up",
            "*.gate_up.weight = *.gate_proj.weight | *.up_proj.weight",
            vec![("a.gate_proj.weight", &[6, 2]), ("a.up_proj.weight", &[6, 2])],
        ),
        (
            "experts",
            "*.w13 = stack(*.experts.#.w1.weight) + stack(*.experts.#.w3.weight) on 1",
            vec![
                ("l.experts.0.w1.weight", &[4, 3]),
                ("l.experts.1.w1.weight", &[4, 3]),
                ("l.experts.0.w3.weight", &[4, 3]),
                ("l.experts.1.w3.weight", &[4, 3]),
            ],
        ),
        ("layers", "stack(t.#) = experts.fc2", vec![("experts.fc2", &[2, 3, 4, 5])]),
        (
            "experts of layers",
            "layers.*.experts.#.down = unstack(rearrange(t.*, 'e o i -> e i o'))",
            vec![("t.0", &[3, 4, 5]), ("t.1", &[3, 4, 5])],
        ),
        (
            "rotary pairs",
            "layers.*.wq.weight = rearrange(*.q_proj.weight, '(h two d) e -> (h d two) e', h=2, two=2)",
            vec![("a.q_proj.weight", &[12, 5])],
        ),
        ("tied embeddings", "lm_head.weight = emb\nemb = emb", vec![("emb", &[4, 3])]),
        (
            "padded vocabulary",
            "word.weight = pad(embed.weight, 512)\nback.weight = word[0:500]",
            vec![("embed.weight", &[500, 3]), ("word", &[512, 3])],
        ),
        (
            "convolutions and patches",
            "taps = rearrange(conv, 'c 1 k -> c k')\n\
             lin = rearrange(patch, 'o i h w -> o (i h w)', h=14, w=14)",
            vec![("conv", &[4, 1, 3]), ("patch", &[2, 3, 14, 14])],
        ),
    ]
}

/// Returns the sources of an example; copies that must be equal are.
pub(crate) fn tensors(list: &[(&str, &[usize])]) -> Tensors {
    let mut tensors = sources(list);
    if let Some(tied) = tensors.iter().position(|(name, _)| name == "lm_head.weight") {
        tensors[tied].1 = tensors[tied - 1].1.clone();
    }
    tensors
}

#[test]
fn examples_equal_the_definition() {
    for (name, lines, list) in examples() {
        let sources = tensors(&list);
        let mapping: Mapping = lines.parse().unwrap();
        let expected = definition::apply(lines, &sources).unwrap().expect("copies are equal");
        let found = run(&mapping, &sources).unwrap().expect("copies are equal");
        assert_eq!(found, expected, "{name}");
    }
}

#[test]
fn tied_embeddings_that_differ_are_found() {
    let (_, lines, list) = &examples()[1];
    let sources = sources(list);
    assert_eq!(definition::apply(lines, &sources).unwrap(), None);
    assert_eq!(run(&lines.parse().unwrap(), &sources).unwrap(), None);
}

#[test]
fn results_are_small_and_in_order() {
    let mapped = |lines: &str, list: &[(&str, &[usize])]| {
        let tensors = tensors(list);
        let list: Vec<SourceTensor<'_>> =
            tensors.iter().map(|(name, t)| SourceTensor { name, shape: &t.shape, dtype: t.dtype }).collect();
        lines.parse::<Mapping>().unwrap().apply(&list).unwrap()
    };
    let examples = examples();

    // Rotary pairs: one nest, with the steps of the design.
    let (_, lines, list) = &examples[9];
    let made = mapped(lines, list).tensors.remove(0);
    let axis = |extent, target_dim, target_step, source_dim, source_step| Axis {
        extent,
        target_dim,
        target_step,
        source_dim: Some(source_dim),
        source_step,
    };
    let rows = [axis(2, 0, 6, 0, 6), axis(3, 0, 2, 0, 1), axis(2, 0, 1, 0, 3), axis(5, 1, 1, 1, 1)];
    assert_eq!((made.pieces.len(), &made.pieces[0].axes[..]), (1, &rows[..]));

    // Parts of ranks: the extents of the operands; the check and the names of `drop`.
    let (_, lines, list) = &examples[1];
    let result = mapped(lines, list);
    assert_eq!(result.tensors[0].local_parts, Some(LocalParts { dim: 0, extents: vec![8, 4, 4] }));
    assert_eq!(
        (&result.dropped[..], &result.kept[..]),
        (&["lm_head.weight".to_owned()][..], &["model.embed_tokens.weight".to_owned()][..])
    );
    assert_eq!(result.checks[0].subject, "lm_head.weight and model.embed_tokens.weight");

    // A tensor that no rule names is one nest with one axis a dim.
    let kept = &result.tensors[1];
    assert_eq!((kept.pieces.len(), kept.pieces[0].axes.len(), kept.pieces[0].source), (1, 2, Some(3)));

    // Blocks are an axis, not one nest each.
    let (_, lines, list) = &examples[3];
    assert_eq!(mapped(lines, list).tensors[0].pieces.len(), 3);
    let (_, lines, list) = &examples[4];
    let result = mapped(lines, list);
    assert!(result.tensors.iter().all(|made| made.pieces.len() == 1));
    let names: Vec<&str> = result.tensors.iter().map(|made| &made.name[..]).collect();
    assert_eq!(
        names,
        ["m.3.q.weight", "m.3.k.weight", "m.3.v.weight", "m.3.q.bias", "m.3.k.bias", "m.3.v.bias"]
    );

    // Repeats read the same elements again: a step of 0.
    let (_, lines, list) = &examples[2];
    let made = mapped(lines, list).tensors.remove(0);
    assert!(made.pieces[1].axes.iter().any(|axis| axis.source_dim.is_none() && axis.source_step == 0));
}
