//! Printing and parsing of rules and of the TOML form.

use reshard_mapping::{Dtype, ErrorKind, Mapping, Rest};

use crate::examples::examples;

#[test]
fn rules_have_one_form() {
    let cases = [
        ("a=b = c", "a=b = c"),
        ("  a   =  b  // a comment", "a = b"),
        ("a = b+c  on 0 by 1", "a = b + c"),
        ("a = cat(b + c on 1)", "a = b + c on 1"),
        ("a = cat( b+c )+d", "a = cat(b + c) + d"),
        ("a = b|c on 1", "a = b | c on 1"),
        ("a + b = c by 3 on 1", "a + b = c on 1 by 3"),
        ("a + b on 2 = c + d", "a + b on 2 = c + d"),
        ("4 a = b", "4 a = b"),
        ("x.# = unstack(a on 1)", "stack(x.# on 1) = a"),
        ("a = stack( x.# on 0 )", "a = stack(x.#)"),
        ("a = b[ : ]", "a = b"),
        ("a = b[:5, :,1:][2:,]", "a = b[0:5, :, 1:][2:]"),
        ("a = pad(b on 1, 4)", "a = pad(b, 4 on 1)"),
        ("a = rearrange(b,'(x y)  1->y (x) 1',x=$h)", "a = rearrange(b, '(x y) 1 -> y x 1', x=$h)"),
        ("a = $n b.$h + 1 c by $k", "a = $n b.$h + 1 c by $k"),
        ("a = cast(b, float16)", "a = cast(b, f16)"),
        ("drop  x.*  == y", "drop x.* == y"),
        ("on = by", "on = by"),
        ("*.{x}.w = {x}.*", "*.{x}.w = {x}.*"),
    ];
    for (given, expected) in cases {
        let mapping: Mapping = given.parse().unwrap();
        assert_eq!(mapping.rules().collect::<Vec<_>>(), [expected], "{given}");
        assert_eq!(mapping.to_string().parse::<Mapping>().unwrap(), mapping, "{given}");
    }
    for (name, lines, _) in examples() {
        let mapping: Mapping = lines.parse().unwrap();
        assert_eq!(mapping.to_string().parse::<Mapping>().unwrap(), mapping, "{name}");
    }
    assert_eq!("\n // nothing\n\n".parse::<Mapping>().unwrap(), Mapping::default());
}

#[test]
fn the_toml_form_retains_order_and_options() {
    let text = "version = 1\nrest = \"error\"\nmapping = '''\na = $h b + $h c // parts\n'''\n[let]\nh = 2\n\
                [cast]\n\"z*\" = \"keep\"\n\"a*\" = \"bf16\"\n\"*\" = \"f32\"\n\
                [placements]\n\"z\" = \"S(0) | R\"\n\"a\" = \"R\"\n";
    let mapping = Mapping::from_toml(text).unwrap();
    assert_eq!((mapping.rest(), mapping.to_string()), (Rest::Error, "a = $h b + $h c\n".to_owned()));
    assert_eq!(mapping.numbers().collect::<Vec<_>>(), [("h", 2)]);
    let casts = [("z*", None), ("a*", Some(Dtype::BF16)), ("*", Some(Dtype::F32))];
    assert_eq!(mapping.casts().collect::<Vec<_>>(), casts);
    assert_eq!(mapping.placements().collect::<Vec<_>>(), [("z", "S(0) | R"), ("a", "R")]);
    assert_eq!(Mapping::from_toml(&mapping.to_toml()).unwrap(), mapping);
    assert_eq!(mapping.inverse().unwrap().inverse().unwrap(), mapping);
    assert_eq!(Mapping::from_toml("").unwrap(), Mapping::default());
}

#[test]
fn the_toml_form_is_checked() {
    let cases = [
        ("version = 2", "version = 2 is not supported; expected version = 1"),
        ("version = \"1\"", "is not supported; expected version = 1"),
        (
            "rules = ''",
            "unknown key `rules`; expected one of: version, rest, mapping, [let], [cast], [placements]",
        ),
        ("rest = \"drop\"", "rest = \"drop\" is unknown; expected \"keep\" or \"error\""),
        ("rest = 1", "the value of `rest` is integer, expected a string"),
        ("let = 3", "the value of `let` is integer, expected a table"),
        ("[let]\nh = -1", "let: `h = -1` is not valid; expected NAME = N with a number from 0"),
        ("[let]\n\"a b\" = 1", "let: `a b = 1` is not valid; expected NAME = N with a number from 0"),
        ("[placements]\na = 1", "the value of `a` is integer, expected a string"),
        ("a b", "line 1 is not valid TOML"),
        ("version = 1\nversion = 1", "line 2 is not valid TOML"),
    ];
    for (text, expected) in cases {
        let error = Mapping::from_toml(text).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::File, "{text}");
        assert!(error.to_string().contains(expected) && !error.to_string().contains('\n'), "{text}: {error}");
    }
    let error = Mapping::from_toml("[cast]\n\"*\" = \"int8\"").unwrap_err();
    assert_eq!(error.to_string(), "unknown type `int8`; expected one of: f16, bf16, f32, f64");
    let error = Mapping::from_toml("mapping = 'a = '").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Syntax);
}
