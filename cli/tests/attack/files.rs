//! Files for `reshard run`: checkpoints, also of PyTorch and NumPy, indices, manifests, specs and topologies, each mutated in a folder of
//! its own.

use std::fs;
use std::path::PathBuf;

use reshard_test_support::Random;
use tempfile::TempDir;

use crate::flags;
use crate::foreign;
use crate::program;
use crate::requests::mutated;
use crate::texts::size;

/// A folder with an output of `reshard run`, and space for mutants of it.
pub(crate) struct Folder {
    dir: TempDir,
    sharded: PathBuf,
}

impl Folder {
    pub(crate) fn new() -> Self {
        let dir = TempDir::new().expect("a folder");
        let sharded = dir.path().join("sharded");
        let out = sharded.to_str().expect("UTF-8").to_owned();
        let mesh = ["run", "--mesh", "x=2", "--from", "R", "--to", "S(0)", "--out", &out];
        assert_eq!(program::reshard(&mesh).status, 0);
        Self { dir, sharded }
    }

    /// Mutates one file and returns the arguments to read it.
    pub(crate) fn run(&mut self, r: &mut Random) -> Vec<String> {
        let place = |name: &str| self.dir.path().join(name);
        let text = |path: PathBuf| path.to_str().expect("UTF-8").to_owned();
        let mesh = format!("x={}", size(r));
        let mut arguments: Vec<String> =
            ["run", "--json", "--to", "S(0)", "--timeout", "10"].map(str::to_owned).into();
        match r.below(10) {
            0 => {
                let mutant = place("manifest");
                fs::create_dir_all(&mutant).expect("a folder");
                for file in fs::read_dir(&self.sharded).expect("it was written").flatten() {
                    // Hard links, because the files are large, and of most mutants only their names are read.
                    let _ = fs::hard_link(file.path(), mutant.join(file.file_name()));
                }
                let manifest =
                    fs::read_to_string(self.sharded.join("sharding.json")).expect("it was written");
                // Not in place: it is a link to the good one.
                let _ = fs::remove_file(mutant.join("sharding.json"));
                fs::write(mutant.join("sharding.json"), mutated(r, &manifest)).expect("it is ours");
                if r.below(3) == 0 {
                    return ["inspect", "--json", &text(mutant)].map(str::to_owned).into();
                }
                arguments.push(text(mutant));
            }
            1 => {
                let mutant = place("index");
                fs::create_dir_all(&mutant).expect("a folder");
                let index =
                    r#"{"metadata":{},"weight_map":{"a":"one.safetensors","b":"../two.safetensors"}}"#;
                fs::write(mutant.join("model.safetensors.index.json"), mutated(r, index))
                    .expect("it is ours");
                if r.below(3) == 0 {
                    return ["inspect", "--json", &text(mutant)].map(str::to_owned).into();
                }
                arguments.extend([text(mutant), "--mesh".to_owned(), mesh]);
            }
            2 => {
                let dtype = r.pick(&["F32", "F4", "F6_E2M3", "BF16", "BOOL"]);
                let (rows, columns) = (1 + r.below(5), 4 * (1 + r.below(3)));
                let header = format!(
                    r#"{{"a":{{"dtype":"{dtype}","shape":[{rows},{columns}],"data_offsets":[0,{}]}}}}"#,
                    rows * columns
                );
                let header = if r.below(3) == 0 { header } else { mutated(r, &header) };
                let mut file = (header.len() as u64).to_le_bytes().to_vec();
                file.extend(header.bytes());
                file.extend(vec![7; rows * columns]);
                file.truncate(file.len() - r.below(2) * r.below(9));
                fs::write(place("a.safetensors"), file).expect("it is ours");
                if r.below(3) == 0 {
                    // A file that opens is equal to itself; two files that differ would be an answer without
                    // a message.
                    let path = text(place("a.safetensors"));
                    return ["diff", "--json", &path, &path].map(str::to_owned).into();
                }
                arguments.extend([text(place("a.safetensors")), "--mesh".to_owned(), mesh]);
            }
            3 => {
                let spec = "\"*.weight\" = \"S(0)\"\n\"*\" = \"R\"\n";
                fs::write(place("spec.toml"), mutated(r, spec)).expect("it is ours");
                arguments.extend(["--spec".to_owned(), text(place("spec.toml")), "--mesh".to_owned(), mesh]);
            }
            4 => {
                let device = r.pick(&["/dev/zero", "/dev/null", "/", "/nowhere", "/dev/stdin"]);
                let profile =
                    "launch_us = 1.0\nmessage_us = 0.1\n[[levels]]\nlatency_us = 1.0\ngbytes_per_s = 10.0\n";
                fs::write(place("net.toml"), mutated(r, profile)).expect("it is ours");
                let topology = if r.below(3) == 0 { (*device).to_owned() } else { text(place("net.toml")) };
                return ["mesh", "x=4,y=2", "--json", "--topology", &topology].map(str::to_owned).into();
            }
            5 | 6 => return flags::run(r, self.dir.path()),
            _ => return foreign::request(r, self.dir.path()),
        }
        arguments
    }
}
