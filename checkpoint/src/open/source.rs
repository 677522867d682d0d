//! How another program distributed tensors over files that do not describe their parts.
//!
//! ```toml
//! [source]
//! files = "mp_rank_{tp:02}_{pp:03}/model_optim_rng.pt"    # every axis of the mesh, in braces; :02 pads with zeros
//! mesh = "pp=2,tp=4"
//! under = "model"                                         # tensors are below this key; the rest is not read
//! stages = { axis = "pp", renumber = "decoder.layers.#", by = 2 }    # # + 2 * pp is the number in the whole
//!
//! [source.placements]                                     # as in a spec of the output: the first match wins
//! "*.linear_qkv.weight" = "R,S(0)"
//! "*.linear_proj.weight" = "R,S(1)"
//! "*norm.weight" = "R,R"
//! ```
//!
//! Patterns match the names in the whole. A tensor is held by the files that have its name, so a tensor of one
//! pipeline stage is `R` along that axis.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use reshard_sharding::Mesh;
use serde::{Deserialize, Serialize};

use crate::bytes::place;
use crate::bytes::read::read_text;
use crate::error::Error;
use crate::select::spec::PlacementSpec;
use crate::shown::Shown;

/// The files of a checkpoint by mesh coordinate, and the placements of the tensors in them.
///
/// ```
/// use reshard_checkpoint::SourceSpec;
///
/// let text = r#"
/// [source]
/// files = "consolidated.{tp:02}.pth"
/// mesh = "tp=8"
/// [source.placements]
/// "*.wo.weight" = "S(1)"
/// "*" = "S(0)"
/// "#;
/// let source: SourceSpec = text.parse()?;
/// assert_eq!(source.file(&[3]), "consolidated.03.pth");
/// assert_eq!(source.to_string().parse::<SourceSpec>()?, source);
/// # Ok::<(), reshard_checkpoint::Error>(())
/// ```
#[derive(Debug, PartialEq, Eq)]
pub struct SourceSpec {
    pub(super) files: Vec<Part>,
    pub(super) mesh: Mesh,
    /// The key above the tensors, without a dot at its end.
    pub(super) under: Option<String>,
    pub(super) stages: Option<Stages>,
    pub(super) placements: PlacementSpec,
}

/// A part of the pattern of file names.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Part {
    Text(String),
    /// The coordinate along an axis, with at least this many digits.
    Axis {
        axis: usize,
        digits: usize,
    },
}

/// The numbers in names that start from 0 in every pipeline stage.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Stages {
    axis: usize,
    /// The text before and after the number.
    before: String,
    after: String,
    by: usize,
}

/// The form of a file.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct File {
    source: Source,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Source {
    files: String,
    mesh: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    under: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stages: Option<StagesText>,
    placements: toml::Table,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct StagesText {
    axis: String,
    renumber: String,
    by: usize,
}

impl SourceSpec {
    /// Reads a source from a TOML file.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let text = read_text(path).map_err(|error| {
            Error::unreadable_as("source", format!("the source {} cannot be read: {error}", path.display()))
        })?;
        text.parse::<Self>().map_err(|error| error.about(format!("the source {}", path.display())))
    }

    /// Returns the source of these files and placements, without a key or stages.
    pub(super) fn of<'a>(
        files: &str,
        mesh: &str,
        placements: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, Error> {
        let mesh: Mesh = mesh.parse()?;
        let files = parts(files, &mesh).map_err(|why| Error::malformed("source", why))?;
        Ok(Self { files, mesh, under: None, stages: None, placements: PlacementSpec::new(placements)? })
    }

    /// Returns the number of keys above a tensor's own path.
    pub(super) fn depth(&self) -> usize {
        self.under.as_ref().map_or(0, |under| 1 + under.matches('.').count())
    }

    /// Returns the file of the rank at a coordinate of the mesh.
    pub fn file(&self, coordinate: &[usize]) -> String {
        let part = |part: &Part| match part {
            Part::Text(text) => text.clone(),
            Part::Axis { axis, digits } => {
                format!("{:0digits$}", coordinate.get(*axis).copied().unwrap_or_default())
            }
        };
        self.files.iter().map(part).collect()
    }

    /// Returns a name below the key, and the name in the whole; `None` if it is not below the key.
    ///
    /// A name whose number is beyond those of its stage, and so would be that of another one, is an error.
    pub(super) fn name<'n>(
        &self,
        name: &'n str,
        coordinate: &[usize],
    ) -> Result<Option<(&'n str, String)>, Error> {
        let local = match &self.under {
            None => Some(name),
            Some(under) => name.strip_prefix(&under[..]).and_then(|rest| rest.strip_prefix('.')),
        };
        let Some(local) = local else { return Ok(None) };
        let whole = match &self.stages {
            None => None,
            Some(stages) => stages.renumbered(local, coordinate)?,
        };
        Ok(Some((local, whole.unwrap_or_else(|| local.to_owned()))))
    }
}

impl SourceSpec {
    /// Returns `true` if a name has a number that stages count.
    pub(super) fn is_numbered(&self, name: &str) -> bool {
        let first = vec![0; self.mesh.axes().len()];
        self.stages
            .as_ref()
            .is_some_and(|stages| stages.renumbered(name, &first).is_ok_and(|found| found.is_some()))
    }

    /// Rejects a key or stages that no name has.
    pub(super) fn check_used(&self, any: bool, renumbered: bool) -> Result<(), Error> {
        let unused = |what: String| Err(Error::refused("source", what));
        match (&self.under, &self.stages) {
            (Some(under), _) if !any => unused(format!("no file has a tensor below under = `{under}`")),
            (_, Some(stages)) if !renumbered => {
                unused(format!("no tensor has a name of renumber = `{}#{}`", stages.before, stages.after))
            }
            (_, _) => Ok(()),
        }
    }
}

impl Stages {
    fn renumbered(&self, name: &str, coordinate: &[usize]) -> Result<Option<String>, Error> {
        let Some(rest) = name.strip_prefix(&self.before[..]) else { return Ok(None) };
        let end = rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len());
        let (digits, rest) = rest.split_at(end);
        let is_number = rest.starts_with(&self.after[..]) && (rest.is_empty() || rest.starts_with('.'));
        let (Ok(number), true) = (digits.parse::<usize>(), is_number) else { return Ok(None) };
        let stage = coordinate.get(self.axis).copied().unwrap_or_default();
        let first = self.by.checked_mul(stage);
        let whole = first.and_then(|first| first.checked_add(number)).filter(|_| number < self.by);
        let whole = whole.ok_or_else(|| {
            let message = format!(
                "stage {stage} has `{}`, but a stage has the numbers below by = {}",
                name.shown(),
                self.by
            );
            Error::mismatch("source", message)
        })?;
        Ok(Some(format!("{}{whole}{rest}", self.before)))
    }
}

impl FromStr for SourceSpec {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let malformed = |why: String| Error::malformed("source", why);
        let file: File = toml::from_str(text).map_err(|error| {
            let line = error.span().map_or(1, |span| 1 + text[..span.start].matches('\n').count());
            let reason = error.message().lines().next().unwrap_or_default();
            malformed(format!("line {line}: {reason}"))
        })?;
        let Source { files, mesh, under, stages, placements } = file.source;
        let mesh: Mesh = mesh.parse()?;
        let files = parts(&files, &mesh).map_err(|why| malformed(format!("files = `{files}`: {why}")))?;
        let stages = stages.map(|stages| stages.checked(&mesh)).transpose()?;
        let rules = placements.iter().map(|(pattern, placements)| {
            let text = placements.as_str();
            let text = text
                .ok_or_else(|| malformed(format!("the pattern `{pattern}` needs placements as a string")))?;
            Ok((&pattern[..], text))
        });
        let rules = rules.collect::<Result<Vec<_>, Error>>()?;
        Ok(Self { files, mesh, under, stages, placements: PlacementSpec::new(rules)? })
    }
}

impl StagesText {
    fn checked(&self, mesh: &Mesh) -> Result<Stages, Error> {
        let Self { axis, renumber, by } = self;
        let Some((before, after)) = renumber.split_once('#').filter(|(_, after)| !after.contains('#')) else {
            let message = format!("renumber = `{renumber}` needs one # for the number, like `layers.#`");
            return Err(Error::malformed("source", message));
        };
        Ok(Stages { axis: mesh.axis(axis)?, before: before.to_owned(), after: after.to_owned(), by: *by })
    }
}

/// Parses the pattern of file names; the error is the reason.
fn parts(text: &str, mesh: &Mesh) -> Result<Vec<Part>, String> {
    let mut parts = Vec::new();
    let mut seen = vec![false; mesh.axes().len()];
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        let (inner, after) = after.split_once('}').ok_or("a brace does not close")?;
        let (axis, digits) = inner.split_once(':').unwrap_or((inner, "1"));
        let number = mesh.axis(axis).map_err(|error| error.to_string())?;
        let digits = digits.parse().ok().filter(|digits| (1..=20).contains(digits));
        let digits =
            digits.ok_or_else(|| format!("`{inner}` needs a number of digits, like {{{axis}:02}}"))?;
        parts.extend([Part::Text(before.to_owned()), Part::Axis { axis: number, digits }]);
        if let Some(seen) = seen.get_mut(number) {
            *seen = true;
        }
        rest = after;
    }
    parts.push(Part::Text(rest.to_owned()));
    if let Some(axis) = mesh.axes().iter().zip(seen).find(|(_, seen)| !seen) {
        return Err(format!("the axis `{}` of the mesh is in no braces", axis.0.name().as_str()));
    }
    let example: String =
        parts.iter().map(|part| if let Part::Text(text) = part { &text[..] } else { "0" }).collect();
    if !place::is_inside(&example) {
        return Err("it must be a path below the folder".to_owned());
    }
    Ok(parts)
}

impl fmt::Display for SourceSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let axis = |axis: usize| self.mesh.axes().get(axis).map_or("", |axis| axis.name().as_str());
        let part = |part: &Part| match part {
            Part::Text(text) => text.clone(),
            Part::Axis { axis: number, digits: 1 } => format!("{{{}}}", axis(*number)),
            Part::Axis { axis: number, digits } => format!("{{{}:0{digits}}}", axis(*number)),
        };
        let source = Source {
            files: self.files.iter().map(part).collect(),
            mesh: self.mesh.to_string(),
            under: self.under.clone(),
            stages: self.stages.as_ref().map(|stages| StagesText {
                axis: axis(stages.axis).to_owned(),
                renumber: format!("{}#{}", stages.before, stages.after),
                by: stages.by,
            }),
            placements: self.placements.to_string().parse().map_err(|_| fmt::Error)?,
        };
        f.write_str(&toml::to_string(&File { source }).map_err(|_| fmt::Error)?)
    }
}
