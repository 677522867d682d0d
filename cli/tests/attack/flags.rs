//! `reshard run` of a small checkpoint that is whole, with flags that are not.

use std::fs;
use std::path::Path;

use reshard_test_support::Random;
use safetensors::tensor::{Dtype, TensorView};

use crate::requests::mutated;
use crate::texts::size;

/// Flags, and a value of each that is right.
const FLAGS: [(&str, &str); 22] = [
    ("--mesh", "x=2,y=2"),
    ("--to", "S(0),S(1)"),
    ("--only", "*.weight=S(1),R"),
    ("--missing-ranks", "1"),
    ("--only", "*.weight"),
    ("--only", "/^layer\\.[0-9]+/"),
    ("--rename", "s/^layer\\.(.*)/decoder.$1/"),
    ("--split", "*.qkv.weight = 2 *.q.weight + *.k.weight + *.v.weight on 0 by 2"),
    ("--fuse", "*.uv = *.u + *.v on 1"),
    ("--dtype", "bf16"),
    ("--format", "rank-files"),
    ("--format", "dcp"),
    ("--format", "dcp-safetensors"),
    ("--format", "safetensors"),
    ("--file-bytes", "100"),
    ("--engine", "threads"),
    ("--engine", "mpi"),
    ("--through-engine", ""),
    ("--no-verify", ""),
    ("--force", ""),
    ("--resume", ""),
    ("--timeout", "3"),
];

/// A run with its outputs in this folder.
pub(crate) fn run(r: &mut Random, folder: &Path) -> Vec<String> {
    let at = |name: &str| folder.join(name).to_str().expect("UTF-8").to_owned();
    let source = at("flags.safetensors");
    if !Path::new(&source).exists() {
        let bytes: Vec<u8> = (0..4096u32).flat_map(|n| (n as f32).to_le_bytes()).collect();
        let view = |shape: &[usize]| {
            let numel: usize = shape.iter().product();
            TensorView::new(Dtype::F32, shape.to_vec(), &bytes[..4 * numel]).expect("as many bytes")
        };
        let tensors = [
            ("layer.0.qkv.weight", view(&[16, 6])),
            ("layer.0.u", view(&[5, 3])),
            ("layer.0.v", view(&[5, 3])),
            ("scale", view(&[])),
            ("none", view(&[0, 4])),
        ];
        fs::write(&source, safetensors::serialize(tensors, None).expect("tensors")).expect("it is ours");
    }
    let mut arguments = ["run", &source, "--json"].map(str::to_owned).to_vec();
    let out = if r.below(4) == 0 {
        ["--gather".to_owned(), at("flags_whole.safetensors")]
    } else {
        ["--out".to_owned(), at("flags_out")]
    };
    arguments.extend(out);
    // With a mesh and a sharding most of the time, so that the other flags are reached.
    for flag in FLAGS.iter().take(2).filter(|_| r.below(8) > 0).collect::<Vec<_>>() {
        arguments.extend([flag.0.to_owned(), flag.1.to_owned()]);
    }
    for _ in 0..=r.below(4) {
        let (flag, value) = *r.pick(&FLAGS);
        arguments.push(flag.to_owned());
        if !value.is_empty() {
            arguments.push(match r.below(3) {
                0 => value.to_owned(),
                // No argument holds a NUL.
                1 => mutated(r, value).replace('\0', ""),
                _ => size(r),
            });
        }
    }
    if r.below(6) == 0 {
        arguments.extend(["--fill-from".to_owned(), if r.below(2) == 0 { source } else { at("nothing") }]);
    }
    arguments
}
