//! Entries that are not tensors, and free texts: carried into an output, or listed with the reason why not.

use std::path::Path;

use reshard_layout::internal::counted;
use serde::Serialize;

use crate::error::Error;
use crate::job::OutputFormat;
use crate::model::objects::{Container, Content, Object};
use crate::model::stored::FreeTexts;
use crate::shown::Shown;

/// The largest number of names that a message lists.
const NAMED: usize = 8;

/// The free text by which PyTorch's tools mark a file as theirs, which a PyTorch distributed checkpoint is.
const OF_PYTORCH: (&str, &str) = ("format", "pt");

/// The entries that are not tensors: carried and not carried.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Others {
    /// The names of those that are in the output.
    pub carried: Vec<String>,
    /// The entries and free texts that are not in the output.
    pub not_carried: Vec<NotCarried>,
    #[serde(skip)]
    target: Target,
}

/// An entry, or a free text, that is not in the output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct NotCarried {
    /// The name of the entry or free text.
    pub name: String,
    /// The reason.
    pub why: String,
    #[serde(skip)]
    what: What,
}

/// The kind of a thing that is not carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Entry,
    FreeText,
}

impl What {
    /// Returns the count with its noun, and the verb `is` or `are`.
    fn counted(self, count: usize) -> (String, &'static str) {
        let (one, many) = match self {
            Self::Entry => ("non-tensor entry", "non-tensor entries"),
            Self::FreeText => ("free text", "free texts"),
        };
        (counted(count, one, many).to_string(), if count == 1 { "is" } else { "are" })
    }
}

/// The output format, as far as entries that are not tensors are concerned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Target {
    /// Nothing is written, so nothing is lost.
    #[default]
    Nowhere,
    RankFiles,
    Dcp {
        /// `true` if a file of whole tensors is written too.
        gathers: bool,
    },
    DcpSafetensors,
    Safetensors,
}

impl Target {
    /// Returns the target of a job; the output directory stores the objects, if there is one.
    pub(crate) fn of(out: Option<&Path>, format: OutputFormat, gather: Option<&Path>) -> Self {
        match (out, gather, format) {
            (None, None, _) => Self::Nowhere,
            (None, Some(_), _) | (Some(_), _, OutputFormat::Safetensors) => Self::Safetensors,
            (Some(_), _, OutputFormat::RankFiles) => Self::RankFiles,
            (Some(_), gather, OutputFormat::Dcp) => Self::Dcp { gathers: gather.is_some() },
            (Some(_), _, OutputFormat::DcpSafetensors) => Self::DcpSafetensors,
        }
    }

    /// Returns `true` if it can hold entries that are not tensors.
    pub(crate) fn holds_objects(self) -> bool {
        matches!(self, Self::RankFiles | Self::Dcp { .. })
    }

    /// Returns `true` if it has a safetensors file, whose header can hold free texts.
    pub(crate) fn holds_texts(self) -> bool {
        match self {
            Self::Nowhere => false,
            Self::Dcp { gathers } => gathers,
            Self::RankFiles | Self::DcpSafetensors | Self::Safetensors => true,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Nowhere => "the output",
            Self::RankFiles => "rank-files",
            Self::Dcp { .. } => "dcp",
            Self::DcpSafetensors => "dcp-safetensors",
            Self::Safetensors => "safetensors",
        }
    }
}

impl Others {
    /// Sorts objects and free texts into those that an output carries and those that it does not.
    pub(crate) fn of(objects: &[Object], texts: Option<&FreeTexts>, target: Target) -> Self {
        let mut this = Self { target, ..Self::default() };
        if target == Target::Nowhere {
            return this;
        }
        for object in objects {
            let why = match &object.content {
                Content::Archive(_) if target.holds_objects() => {
                    this.carried.push(object.name.clone());
                    continue;
                }
                Content::Archive(_) => {
                    format!("{} files hold only tensors; `--format dcp` keeps it", target.name())
                }
                Content::PartOf(container) => container.why().into_owned(),
            };
            this.not_carried.push(NotCarried { name: object.name.clone(), why, what: What::Entry });
        }
        if !target.holds_texts() {
            let texts = texts.into_iter().flatten().map(|(key, text)| (&key[..], &text[..]));
            this.not_carried.extend(texts.filter(|text| *text != OF_PYTORCH).map(|(key, _)| NotCarried {
                name: key.to_owned(),
                why: format!("{} has no free texts; `--format rank-files` keeps it", target.name()),
                what: What::FreeText,
            }));
        }
        this
    }

    /// Returns an error if the input lacks objects that it should have.
    ///
    /// It does not if a partial result was requested. With `strict`, also returns an error if the output
    /// cannot hold some of them.
    pub(crate) fn check(&self, objects: &[Object], strict: bool) -> Result<(), Error> {
        let missing = |object: &&Object| {
            matches!(&object.content, Content::PartOf(Container::Missing)) && self.target != Target::Nowhere
        };
        if let Some(object) = objects.iter().find(missing) {
            let message = format!(
                "{}; exclude it with `--only`, or read only the surviving ranks with `--missing-ranks`",
                Container::Missing.why()
            );
            return Err(Error::refused("lost", message).about(format_args!("`{}`", object.name.shown())));
        }
        let lost = self.lost();
        if lost.is_empty() || !strict {
            return Ok(());
        }
        Err(Error::refused("not_carried", format!("--strict: {}", lost.join("; "))))
    }

    /// Returns one line on the carried entries, and one for each reason for which others were not carried.
    #[doc(hidden)]
    pub fn lines(&self) -> Vec<String> {
        let carried = match self.carried.len() {
            0 => None,
            count => Some(format!("carried {}", What::Entry.counted(count).0)),
        };
        carried.into_iter().chain(self.lost()).collect()
    }

    /// Returns one message per reason, in the order in which the reasons occur.
    fn lost(&self) -> Vec<String> {
        let mut reasons: Vec<(&NotCarried, Vec<String>, usize)> = Vec::new();
        for one in &self.not_carried {
            let known =
                reasons.iter().position(|(first, _, _)| (first.what, &first.why) == (one.what, &one.why));
            let at = known.unwrap_or_else(|| {
                reasons.push((one, Vec::new(), 0));
                reasons.len() - 1
            });
            let (_, named, count) = &mut reasons[at];
            *count += 1;
            if *count <= NAMED {
                named.push(one.name.shown());
            }
        }
        let line = |(first, named, count): (&NotCarried, Vec<String>, usize)| {
            let (counted, are) = first.what.counted(count);
            let more = if count > NAMED { ", .." } else { "" };
            let (named, target) = (named.join(", "), self.target.name());
            format!("{counted} {are} not in {target}: {named}{more} (`--json` lists all): {}", first.why)
        };
        reasons.into_iter().map(line).collect()
    }
}
