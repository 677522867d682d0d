//! Texts, other notations and storage.

use reshard_kernels::DType;
use reshard_planner::{Plan, Planner};
use reshard_sharding::PartitionRegistry;
use reshard_sharding::{Error, Mesh, Placement, Placements, Sharding};

use super::brought::{block_cyclic, registry};

fn mesh() -> Mesh {
    "a=2,b=3".parse().unwrap()
}

#[test]
fn placements_are_read_and_printed() {
    for (text, printed) in [
        ("Z(0)", "Z(0)"),
        ("Zigzag(dim=2)", "Z(2)"),
        ("BL(1,4)", "BL(1,4)"),
        ("Block(dim=0, 07)", "BL(0,7)"),
        ("Rolled(dim=1, 2)", "RO(1,2)"),
        ("BC(1,4)", "BC(1,4)"),
        (" BC ( dim=1 , 4 ) ", "BC(1,4)"),
    ] {
        let p = Placement::parse_with(&registry(), text).unwrap_or_else(|e| panic!("{text}: {e}"));
        assert_eq!(p.to_string(), printed);
    }
    let list = Placements::parse_with(&registry(), "[Z(0), BC(0,2), R, P(max)]").unwrap();
    assert_eq!(list.to_string(), "Z(0),BC(0,2),R,P(max)");
    assert_eq!(list[0], Placement::zigzag(0));
    assert_eq!(list[1], block_cyclic(0, 2));
    assert_ne!(list[1], block_cyclic(0, 3));
    for (text, says) in [
        ("Z(0,3)", "Z takes only a dim"),
        ("BL(0)", "BL takes the length of a block"),
        ("BL(0,0)", "BL takes the length of a block"),
        ("BL(0,+1)", "BL takes the length of a block"),
        ("RO(0)", "RO takes the shift, in indices, after the dim"),
        ("Z", "a placement: R, S(dim)"),
        ("Z()", "counted from 0"),
        ("Z(0", "\")\""),
        ("BC(0)", "blocks of at least 1, not \"\""),
        ("BC(0,0)", "blocks of at least 1"),
        ("BC(0,[1)", "blocks of at least 1"),
        ("QQ(0,1)", "register a custom partition QQ before parsing"),
        ("QQ(", "register a custom partition QQ"),
    ] {
        let e = Placement::parse_with(&registry(), text).unwrap_err();
        assert!(matches!(e, Error::Parse { .. }) && e.to_string().contains(says), "{text}: {e}");
    }
    let e = "BC(0,2)".parse::<Placement>().unwrap_err();
    assert!(e.to_string().contains("Z(dim)") && e.to_string().contains("register"), "{e}");
}

#[test]
fn orders_of_axes_are_read_and_printed() {
    let s = Sharding::parse(&mesh(), &[25], "S(0),Z(0) order={b,a}").unwrap();
    assert_eq!(s.to_string(), "S(0),Z(0) order={b,a}");
    assert_ne!(s, Sharding::parse(&mesh(), &[25], "S(0),Z(0)").unwrap());
    let e = Sharding::parse(&mesh(), &[25], "S(0)[1]Z(0)").unwrap_err();
    assert_eq!(e.code(), "parse");
}

#[test]
fn both_readings_of_strided_shards_go_on_behind_a_cut() {
    let placements: Placements = "Z(0),S(0)".parse().unwrap();
    for extent in 0..=30 {
        let readings = Sharding::strided_readings(&mesh(), &[extent], &placements).unwrap();
        assert!(readings.agree && readings.literal == readings.ordered, "{extent}");
    }
}

/// A notation that cannot express a partition returns an error; if its ranges are chunks, it writes those.
#[test]
fn other_notations_have_no_word_for_cuts() {
    let s = Sharding::parse(&mesh(), &[24, 5], "Z(0),R").unwrap();
    let refused: [(&str, Result<String, Error>); 5] = [
        ("by tensor", s.to_dims_notation()),
        ("shardy", s.to_shardy()),
        ("jax", s.to_partition_spec()),
        ("pytorch", s.to_pytorch()),
        ("hlo", s.to_hlo().map(|h| h.to_string())),
    ];
    for (name, text) in refused {
        let e = text.unwrap_err();
        assert_eq!(e.code(), "not_expressible", "{name}: {e}");
        assert!(e.to_string().contains("Z(0),R"), "{name}: {e}");
    }
    let s = Sharding::parse(&mesh(), &[2, 5], "Z(0),R").unwrap();
    assert_eq!(s.to_dims_notation().unwrap(), "[{a},{}]");
}

#[test]
fn what_is_stored_reads_back() {
    let shipped = Sharding::parse(&mesh(), &[26, 4], "Z(0),S(1)").unwrap();
    let text = serde_json::to_string(&shipped).unwrap();
    assert_eq!(serde_json::from_str::<Sharding>(&text).unwrap(), shipped);
    let other = Sharding::new(&mesh(), &[26, 4], &[block_cyclic(0, 2), Placement::zigzag(0)]).unwrap();
    let text = serde_json::to_string(&other).unwrap();
    let e = serde_json::from_str::<Sharding>(&text).unwrap_err().to_string();
    assert!(e.contains("register a custom partition BC before parsing"), "{e}");
    let read = |cuts: &PartitionRegistry| {
        Sharding::deserialize_with(cuts, &mut serde_json::Deserializer::from_str(&text))
    };
    assert_eq!(read(&registry()).unwrap(), other);
    assert!(read(&PartitionRegistry::new()).is_err());

    let plan = Planner::new().plan(&shipped, &other, DType::F32).unwrap();
    let text = serde_json::to_string(&plan).unwrap();
    let e = serde_json::from_str::<Plan>(&text).unwrap_err().to_string();
    assert!(e.contains("register a custom partition BC"), "{e}");
    let again = Plan::deserialize_with(&registry(), &mut serde_json::Deserializer::from_str(&text)).unwrap();
    assert_eq!((again.to_string(), again.to()), (plan.to_string(), &other));
}
