use reshard_test_support::Random;

use crate::error::Error;
use crate::formats::pickle::machine::{GROWING, LINK, NODE, read_within};
use crate::formats::pickle::tree::{Name, Node};
use crate::formats::pickle::{Global, Id, Pickle};

/// The pickle of one value by Python, in each of its protocols.
///
/// The value is `OrderedDict([("a", [1, -2, 300, 70000, 2**40, -2**63]), ("t", (1, 2, 3, 4)), ("e", ()),
/// ("n", None), ("f", 0.5), ("d", {"k": "v", 7: True}), ("s", {1}), ("again", <the first list>)])`.
#[rustfmt::skip]
const PROTOCOLS: [&[u8]; 6] = [
    b"ccollections\nOrderedDict\np0\n(tRp1\nVa\np2\n(lp3\nI1\naI-2\naI300\naI70000\naL1099511627776L\naL-9223372036854775808L\nasVt\np4\n(I1\nI2\nI3\nI4\ntp5\nsVe\np6\n(tsVn\np7\nNsVf\np8\nF0.5\nsVd\np9\n(dp10\nVk\np11\nVv\np12\nsI7\nI01\nssVs\np13\nc__builtin__\nset\np14\n((lp15\nI1\natp16\nRp17\nsVagain\np18\ng3\ns.",
    b"ccollections\nOrderedDict\nq\x00)Rq\x01(X\x01\x00\x00\x00aq\x02]q\x03(K\x01J\xfe\xff\xff\xffM,\x01Jp\x11\x01\x00L1099511627776L\nL-9223372036854775808L\neX\x01\x00\x00\x00tq\x04(K\x01K\x02K\x03K\x04tq\x05X\x01\x00\x00\x00eq\x06)X\x01\x00\x00\x00nq\x07NX\x01\x00\x00\x00fq\x08G?\xe0\x00\x00\x00\x00\x00\x00X\x01\x00\x00\x00dq\x09}q\n(X\x01\x00\x00\x00kq\x0bX\x01\x00\x00\x00vq\x0cK\x07I01\nuX\x01\x00\x00\x00sq\x0dc__builtin__\nset\nq\x0e(]q\x0fK\x01atq\x10Rq\x11X\x05\x00\x00\x00againq\x12h\x03u.",
    b"\x80\x02ccollections\nOrderedDict\nq\x00)Rq\x01(X\x01\x00\x00\x00aq\x02]q\x03(K\x01J\xfe\xff\xff\xffM,\x01Jp\x11\x01\x00\x8a\x06\x00\x00\x00\x00\x00\x01\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x80eX\x01\x00\x00\x00tq\x04(K\x01K\x02K\x03K\x04tq\x05X\x01\x00\x00\x00eq\x06)X\x01\x00\x00\x00nq\x07NX\x01\x00\x00\x00fq\x08G?\xe0\x00\x00\x00\x00\x00\x00X\x01\x00\x00\x00dq\x09}q\n(X\x01\x00\x00\x00kq\x0bX\x01\x00\x00\x00vq\x0cK\x07\x88uX\x01\x00\x00\x00sq\x0dc__builtin__\nset\nq\x0e]q\x0fK\x01a\x85q\x10Rq\x11X\x05\x00\x00\x00againq\x12h\x03u.",
    b"\x80\x03ccollections\nOrderedDict\nq\x00)Rq\x01(X\x01\x00\x00\x00aq\x02]q\x03(K\x01J\xfe\xff\xff\xffM,\x01Jp\x11\x01\x00\x8a\x06\x00\x00\x00\x00\x00\x01\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x80eX\x01\x00\x00\x00tq\x04(K\x01K\x02K\x03K\x04tq\x05X\x01\x00\x00\x00eq\x06)X\x01\x00\x00\x00nq\x07NX\x01\x00\x00\x00fq\x08G?\xe0\x00\x00\x00\x00\x00\x00X\x01\x00\x00\x00dq\x09}q\n(X\x01\x00\x00\x00kq\x0bX\x01\x00\x00\x00vq\x0cK\x07\x88uX\x01\x00\x00\x00sq\x0dcbuiltins\nset\nq\x0e]q\x0fK\x01a\x85q\x10Rq\x11X\x05\x00\x00\x00againq\x12h\x03u.",
    b"\x80\x04\x95\x9a\x00\x00\x00\x00\x00\x00\x00\x8c\x0bcollections\x94\x8c\x0bOrderedDict\x94\x93\x94)R\x94(\x8c\x01a\x94]\x94(K\x01J\xfe\xff\xff\xffM,\x01Jp\x11\x01\x00\x8a\x06\x00\x00\x00\x00\x00\x01\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x80e\x8c\x01t\x94(K\x01K\x02K\x03K\x04t\x94\x8c\x01e\x94)\x8c\x01n\x94N\x8c\x01f\x94G?\xe0\x00\x00\x00\x00\x00\x00\x8c\x01d\x94}\x94(\x8c\x01k\x94\x8c\x01v\x94K\x07\x88u\x8c\x01s\x94\x8f\x94(K\x01\x90\x8c\x05again\x94h\x05u.",
    b"\x80\x05\x95\x9a\x00\x00\x00\x00\x00\x00\x00\x8c\x0bcollections\x94\x8c\x0bOrderedDict\x94\x93\x94)R\x94(\x8c\x01a\x94]\x94(K\x01J\xfe\xff\xff\xffM,\x01Jp\x11\x01\x00\x8a\x06\x00\x00\x00\x00\x00\x01\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x80e\x8c\x01t\x94(K\x01K\x02K\x03K\x04t\x94\x8c\x01e\x94)\x8c\x01n\x94N\x8c\x01f\x94G?\xe0\x00\x00\x00\x00\x00\x00\x8c\x01d\x94}\x94(\x8c\x01k\x94\x8c\x01v\x94K\x07\x88u\x8c\x01s\x94\x8f\x94(K\x01\x90\x8c\x05again\x94h\x05u.",
];

/// Returns the value of an entry.
fn entry(pickle: &Pickle<'_>, name: &str) -> Id {
    pickle.needed(pickle.root(), name).unwrap()
}

/// Returns the error message for an invalid pickle.
fn refused(bytes: &[u8]) -> String {
    let error = Pickle::read(bytes).err().unwrap();
    assert_eq!(error.code(), "pickle");
    error.to_string()
}

#[test]
fn all_protocols_say_the_same() {
    for (protocol, bytes) in PROTOCOLS.iter().enumerate() {
        let pickle = Pickle::read(bytes).unwrap_or_else(|error| panic!("protocol {protocol}: {error}"));
        let sizes = |id: Id| -> Result<Vec<u64>, Error> {
            pickle.parts(id)?.unwrap().iter().map(|part| pickle.size(*part, "it")).collect()
        };
        if protocol > 0 {
            assert_eq!(pickle.entries(pickle.root()).unwrap().unwrap().len(), 8);
        }
        let list = pickle.parts(entry(&pickle, "a")).unwrap().unwrap().to_vec();
        let said: Vec<Result<u64, String>> =
            list.iter().map(|part| pickle.size(*part, "it").map_err(|error| error.to_string())).collect();
        let negative = |value: i64| Err(format!("it is {value}, and cannot be negative"));
        let expected = [Ok(1), negative(-2), Ok(300), Ok(70_000), Ok(1 << 40), negative(i64::MIN)];
        assert_eq!(said, expected, "protocol {protocol}");
        assert_eq!(sizes(entry(&pickle, "t")).unwrap(), [1, 2, 3, 4]);
        assert_eq!(sizes(entry(&pickle, "e")).unwrap(), [0; 0]);
        assert!(pickle.is_none(entry(&pickle, "n")) && !pickle.is_none(entry(&pickle, "f")));
        let dict = entry(&pickle, "d");
        assert_eq!(pickle.text(pickle.needed(dict, "k").unwrap(), "it").unwrap(), "v");
        let keys =
            pickle.entries(dict).unwrap().unwrap().iter().map(|(key, _)| pickle.key(*key).unwrap().unwrap());
        assert_eq!(keys.collect::<Vec<_>>(), ["k", "7"]);
        assert_eq!(entry(&pickle, "again"), entry(&pickle, "a"));
        assert!(pickle.size(entry(&pickle, "s"), "it").is_err());
    }
}

/// An unknown name makes an object of which only the class is known; nothing is looked up.
#[test]
fn a_name_that_is_not_on_the_list_is_the_class_of_an_object() {
    let unknown: [(&[u8], &str); 5] = [
        (b"cos\nsystem\n(X\x02\x00\x00\x00lstR.", "os.system"),
        (b"\x80\x04\x8c\x08builtins\x8c\x04eval\x93)R.", "builtins.eval"),
        (b"ctorch._utils\n_rebuild_tensor_v2 \n)\x81.", "torch._utils._rebuild_tensor_v2 "),
        // Made with keyword arguments, given a state, entries as of a dict, and parts as of a list.
        (b"\x80\x04\x8c\x01m\x8c\x01C\x93)}(X\x01\x00\x00\x00aK\x01u\x92.", "m.C"),
        (b"cm\nC\n)\x81K\x01K\x02sK\x03a(K\x04e}b.", "m.C"),
    ];
    for (bytes, class) in unknown {
        let pickle = Pickle::read(bytes).unwrap();
        assert_eq!(pickle.unknown_class(pickle.root()).as_deref(), Some(class));
        let said = pickle.state(pickle.root(), Global::Metadata, "what it holds").unwrap_err().to_string();
        assert!(said.contains(&format!("the class `{class}`, which is not known")), "{said}");
        assert!(pickle.call(pickle.root()).unwrap().is_none());
    }
    let size = Pickle::read(b"ctorch\nSize\n.").unwrap();
    assert_eq!((size.global(size.root()), size.unknown_class(size.root())), (Some(Global::Size), None));
    assert!(refused(b"cos\nsystem\n)R)R.").contains("not a name"), "a result is not called");
}

/// An ordered dict may be made of pairs, as a list of lists or of tuples, and get more entries.
#[test]
fn an_ordered_dict_has_the_pairs_that_it_is_made_of() {
    for pairs in [
        &b"](K\x01K\x02\x86K\x03K\x04\x86e"[..],
        b"](](K\x01K\x02e](K\x03K\x04ee",
        b"}(K\x01K\x02K\x03K\x04u",
    ] {
        let bytes = [b"ccollections\nOrderedDict\n", pairs, b"\x85RK\x05K\x06s."].concat();
        let pickle = Pickle::read(&bytes).unwrap();
        let entries = pickle.entries(pickle.root()).unwrap().unwrap();
        let number = |id| pickle.size(id, "it").unwrap();
        let found: Vec<(u64, u64)> =
            entries.iter().map(|(key, value)| (number(*key), number(*value))).collect();
        assert_eq!(found, [(1, 2), (3, 4), (5, 6)]);
    }
    assert!(refused(b"ccollections\nOrderedDict\nK\x01\x85R.").contains("other than pairs"));
}

/// Everything that an object is made of is found in it, also what an unknown class was given.
#[test]
fn what_is_within_an_object_is_found() {
    // m.C(1), with the state {2: 3}, the entry 4: 5, and the part 6.
    let pickle = Pickle::read(b"cm\nC\nK\x01\x85RK\x04K\x05sK\x06a}K\x02K\x03sb.").unwrap();
    let mut found = Vec::new();
    let mut take = |id| {
        found.extend(pickle.size(id, "it").ok());
        Ok(false)
    };
    pickle.any_within(pickle.root(), &mut take).unwrap();
    found.sort_unstable();
    assert_eq!(found, [1, 2, 3, 4, 5, 6]);
    let three = |id| Ok(pickle.size(id, "it").is_ok_and(|value| value == 3));
    assert!(pickle.any_within(pickle.root(), &mut { three }).unwrap());
}

#[test]
fn instructions_that_are_no_data_are_refused() {
    for op in
        [b"(ios\nsystem\n." as &[u8], b"(ctorch\nSize\no.", b"Pkey\n.", b"\x82\x01.", b"\x97.", b"\xff."]
    {
        assert!(refused(op).contains("instruction"), "{}", refused(op));
    }
    for (bytes, why) in [
        (b"" as &[u8], "ends"),
        (b".", "more values than the stack has"),
        (b"t.", "mark"),
        (b"h\x05.", "no entry 5"),
        (b"Na.", "more values than the stack has"),
        (b"NNa.", "not a list"),
        (b"}(Nu.", "without a value"),
        (b"NN\x86R.", "more values than the stack has"),
        (b"N)R.", "not a name"),
        (b"ctorch\nSize\nNR.", "not a tuple"),
        (b"NNb.", "not an object"),
        (b"\x80\x06N.", "protocol 6"),
        (b"X\xff\xff\xff\xff.", "in the middle"),
        (b"\x8d\xff\xff\xff\xff\xff\xff\xff\xff.", "in the middle"),
        (b"\x8b\xff\xff\xff\xff.", "in the middle"),
        (b"(((1110.", "more values than the stack has"),
    ] {
        assert!(refused(bytes).contains(why), "{bytes:?}: {}", refused(bytes));
    }
}

/// Every node, link and object takes from the budget, so expensive instructions take bounded memory.
#[test]
fn what_takes_too_much_memory_is_refused() {
    // A list that doubles has at most twice the needed capacity, and during growth half as much in addition.
    assert!(3 * size_of::<Node>() / 2 <= NODE && 2 * size_of::<Id>() <= LINK);
    assert!(3 * size_of::<Vec<Id>>() / 2 <= GROWING && size_of::<Name>() <= GROWING);
    for text in [b"]" as &[u8], b"N", b"(", b"}", b"ctorch\nSize\n)R", b"N\x85", b"2\x94"] {
        let many = text.repeat((1 << 20) / text.len());
        let error = read_within(&[b"N", &many[..], b"."].concat(), 1 << 20).err().unwrap();
        assert!(error.to_string().contains("too much memory"), "{error}");
    }
}

/// Visits all parts of a list, shared ones repeatedly.
fn all(pickle: &Pickle<'_>, id: Id) -> Result<u64, Error> {
    pickle.parts(id)?.unwrap_or_default().iter().try_fold(1, |sum, part| Ok(sum + all(pickle, *part)?))
}

/// A list of the same list twice, again of one twice, ..: small as a pickle, large when expanded.
#[test]
fn parts_that_are_said_again_and_again_are_refused() {
    let mut bytes = b"(lp0\n".to_vec();
    for depth in 0..200 {
        bytes.extend(format!("0(g{depth}\ng{depth}\ntp{}\n", depth + 1).bytes());
    }
    bytes.push(b'.');
    let pickle = Pickle::read(&bytes).unwrap();
    let error = all(&pickle, pickle.root()).unwrap_err();
    assert!(error.to_string().contains("too many times"), "{error}");
}

/// Random instructions, and the pickles above with some bytes changed: a result or an error, never a panic.
#[test]
fn no_bytes_make_the_machine_panic() {
    let mut r = Random(77);
    let ops = b"(.012FGIJKLMNPQRSTUVX]abcdeghijlopqrstu}\x80\x81\x82\x85\x86\x87\x88\x89\x8a\x8b\x8c\x8d\x8e\x8f\x90\x91\x92\x93\x94\x95\x96\x97";
    let (mut taken, mut left) = (0, 0);
    for round in 0..40_000 {
        let mut bytes: Vec<u8> = if round % 2 == 0 {
            (0..r.below(60))
                .map(|_| if r.below(4) == 0 { r.below(256) as u8 } else { *r.pick(ops) })
                .collect()
        } else {
            r.pick(&PROTOCOLS).to_vec()
        };
        for _ in 0..r.below(4) {
            if !bytes.is_empty() {
                let at = r.below(bytes.len());
                bytes[at] = r.next_u64() as u8;
            }
        }
        match Pickle::read(&bytes) {
            Err(error) => {
                assert!(!error.to_string().is_empty());
                left += 1;
            }
            Ok(pickle) => {
                let _ = (
                    pickle.entries(pickle.root()),
                    pickle.attribute(pickle.root(), "a"),
                    pickle.key(pickle.root()),
                );
                taken += 1;
            }
        }
    }
    assert!(taken > 1000 && left > 1000, "{taken} {left}");
}
