//! Kinds of errors: each is that of the cause, next to its code; the exit status is 2.

use std::fs;

use reshard_checkpoint::{Checkpoint, PlacementSpec, ReshardJob};
use reshard_test_support::Random;
use safetensors::Dtype;

use crate::files::{Tensors, job, tensor, write};
use crate::reading::opened;
use reshard_checkpoint::ErrorKind::{InvalidInput, Io, Parse, Unsupported, Verification};

#[test]
fn an_error_has_the_kind_of_its_cause() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let open = |name: &str, bytes: &[u8]| {
        fs::create_dir_all(path(name).parent().unwrap()).unwrap();
        fs::write(path(name), bytes).unwrap();
        let named = if path(name).extension().is_some_and(|extension| extension == "json") {
            path(name).parent().unwrap().to_owned()
        } else {
            path(name)
        };
        Checkpoint::open(Some(&named)).err().unwrap()
    };
    let array = |descr: &str| {
        let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': (1,)}}");
        [b"\x93NUMPY\x01\x00", &(header.len() as u16).to_le_bytes()[..], header.as_bytes(), &[0; 4]].concat()
    };
    let version = br#"{"format":"another","version":9,"mesh":"a=1","world":1,"tensors":{}}"#;

    let whole = path("w.safetensors");
    let tensors: Tensors = [("w".to_owned(), tensor(&mut Random(5), Dtype::F32, &[4, 4]))].into();
    write(&whole, &tensors);
    let to = |input: &str, out: &str| ReshardJob {
        out: Some(path(out)),
        ..job(&path(input), "a=2", "S(0)", false)
    };
    to("w.safetensors", "ranks").run(&mut ()).unwrap();
    let damaged = fs::read_dir(path("ranks")).unwrap().map(|entry| entry.unwrap().path());
    let damaged =
        damaged.filter(|path| path.extension().is_some_and(|end| end == "safetensors")).min().unwrap();
    let mut bytes = fs::read(&damaged).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&damaged, bytes).unwrap();

    for (error, kind, code) in [
        (Checkpoint::open(Some(&path("nowhere"))).err().unwrap(), Io, "input"),
        (PlacementSpec::read(&path("nowhere.toml")).unwrap_err(), Io, "spec"),
        (open("short.safetensors", b"short"), Parse, "safetensors"),
        (open("manifest/sharding.json", b"{"), Parse, "manifest"),
        (open("index/model.safetensors.index.json", b"{"), Parse, "index"),
        (open("array.npy", &array("<f8")), Parse, "numpy"),
        ("1".parse::<PlacementSpec>().unwrap_err(), Parse, "spec"),
        (opened(&whole).filter(["["]).err().unwrap(), Parse, "pattern"),
        (open("complex.npy", &array("<c16")), Unsupported, "numpy"),
        (open("other/sharding.json", version), Unsupported, "manifest"),
        (open("bare.pkl", b"\x80\x02N."), Unsupported, "input"),
        (to("ranks", "again").run(&mut ()).unwrap_err(), Verification, "checksum"),
        (opened(&whole).tensor("v").err().unwrap(), InvalidInput, "no_such_tensor"),
        (opened(&whole).filter(["v"]).err().unwrap(), InvalidInput, "unused_pattern"),
    ] {
        assert_eq!((error.kind(), error.code(), error.status()), (kind, code, 2), "{error}");
    }
}
