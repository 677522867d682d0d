//! The TOML form of a mapping, with its options.

use toml::{Table, Value};

use crate::error::{Error, ErrorKind, shown};
use crate::mapping::{Mapping, Rest};
use crate::number::is_name;

/// The only version.
const VERSION: i64 = 1;

/// The keys of the form, for messages.
const KEYS: &str = "version, rest, mapping, [let], [cast], [placements]";

impl Mapping {
    /// Parses the TOML form.
    ///
    /// All keys are optional: `version` (1), `rest` (`"keep"` or `"error"`), `mapping` (the lines), and the tables
    /// `[let]` (numbers), `[cast]` (types by pattern) and `[placements]` (texts by pattern). The order of the
    /// tables is retained.
    ///
    /// ```
    /// use reshard_mapping::{Mapping, Rest};
    ///
    /// let text = r#"
    ///     version = 1
    ///     rest = "error"
    ///     mapping = '''
    ///     *.gate_up.weight = *.gate_proj.weight | *.up_proj.weight
    ///     '''
    ///     [cast]
    ///     "*.bias" = "keep"
    ///     "*" = "bf16"
    ///     [placements]
    ///     "*.gate_up.weight" = "S(0) | S(0)"
    /// "#;
    /// let mapping = Mapping::from_toml(text)?;
    /// assert_eq!((mapping.rest(), mapping.casts().next()), (Rest::Error, Some(("*.bias", None))));
    /// assert_eq!(Mapping::from_toml(&mapping.to_toml())?, mapping);
    /// # Ok::<(), reshard_mapping::Error>(())
    /// ```
    pub fn from_toml(text: &str) -> Result<Self, Error> {
        let table: Table = text.parse().map_err(|error: toml::de::Error| {
            let line = error.span().map_or(1, |span| 1 + text[..span.start].matches('\n').count());
            let reason = error.message().lines().next().unwrap_or_default().to_owned();
            Error::new(ErrorKind::File, format!("line {line} is not valid TOML: {reason}"))
        })?;
        let mut mapping = match table.get("mapping") {
            Some(lines) => string("mapping", lines)?.parse()?,
            None => Self::default(),
        };
        for (key, value) in &table {
            match &key[..] {
                "version" if value.as_integer() == Some(VERSION) => {}
                "version" => {
                    let message = format!("version = {value} is not supported; expected version = {VERSION}");
                    return Err(Error::new(ErrorKind::File, message));
                }
                "mapping" => {}
                "rest" => mapping = mapping.with_rest(rest(string(key, value)?)?),
                "let" => {
                    for (name, value) in entries(key, value)? {
                        let number = value.as_integer().and_then(|n| usize::try_from(n).ok());
                        let Some(number) = number.filter(|_| is_name(name)) else {
                            let message = format!(
                                "let: `{} = {}` is not valid; expected NAME = N with a number from 0",
                                shown(name),
                                shown(&value.to_string())
                            );
                            return Err(Error::new(ErrorKind::File, message));
                        };
                        mapping = mapping.with_number(name, number)?;
                    }
                }
                "cast" => {
                    for (pattern, value) in entries(key, value)? {
                        mapping = mapping.with_cast(pattern, string(pattern, value)?)?;
                    }
                }
                "placements" => {
                    for (pattern, value) in entries(key, value)? {
                        mapping = mapping.with_placements(pattern, string(pattern, value)?);
                    }
                }
                _ => {
                    let message = format!("unknown key `{}`; expected one of: {KEYS}", shown(key));
                    return Err(Error::new(ErrorKind::File, message));
                }
            }
        }
        Ok(mapping)
    }

    /// Returns the TOML form, which [`Mapping::from_toml`] parses to an equal mapping.
    pub fn to_toml(&self) -> String {
        let mut table = Table::new();
        table.insert("version".to_owned(), VERSION.into());
        let rest = match self.rest() {
            Rest::Keep => "keep",
            Rest::Error => "error",
        };
        table.insert("rest".to_owned(), rest.into());
        table.insert("mapping".to_owned(), self.to_string().into());
        let mut add = |key: &str, entries: Table| {
            if !entries.is_empty() {
                table.insert(key.to_owned(), entries.into());
            }
        };
        // Integers of TOML have 64 bits with a sign; numbers of a mapping are extents, far below.
        let number = |n: usize| Value::Integer(i64::try_from(n).unwrap_or(i64::MAX));
        add("let", self.numbers().map(|(name, n)| (name.to_owned(), number(n))).collect());
        let type_name = |to| crate::dtype::name(to).unwrap_or("keep");
        add(
            "cast",
            self.casts().map(|(key, to)| (key.to_owned(), to.map_or("keep", type_name).into())).collect(),
        );
        add("placements", self.placements().map(|(key, text)| (key.to_owned(), text.into())).collect());
        table.to_string()
    }
}

fn rest(text: &str) -> Result<Rest, Error> {
    match text {
        "keep" => Ok(Rest::Keep),
        "error" => Ok(Rest::Error),
        _ => {
            let message = format!("rest = \"{}\" is unknown; expected \"keep\" or \"error\"", shown(text));
            Err(Error::new(ErrorKind::File, message))
        }
    }
}

fn string<'a>(key: &str, value: &'a Value) -> Result<&'a str, Error> {
    value.as_str().ok_or_else(|| {
        let message = format!("the value of `{}` is {}, expected a string", shown(key), value.type_str());
        Error::new(ErrorKind::File, message)
    })
}

fn entries<'a>(key: &str, value: &'a Value) -> Result<&'a Table, Error> {
    value.as_table().ok_or_else(|| {
        let message = format!("the value of `{key}` is {}, expected a table", value.type_str());
        Error::new(ErrorKind::File, message)
    })
}
