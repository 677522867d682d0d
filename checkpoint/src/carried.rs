//! What becomes of that which is no tensor, in an output: entries and free texts are carried, or named with the reason why not.

use std::path::Path;

use reshard_layout::internal::counted;
use serde::Serialize;

use super::error::Error;
use super::header::FreeTexts;
use super::job::OutputFormat;
use super::objects::{Container, Content, Object};
use crate::shown::Shown;

/// So many names are listed in a message.
const NAMED: usize = 8;

/// The free text by which PyTorch's own tools say that a file is PyTorch's, which a distributed checkpoint of PyTorch is.
const OF_PYTORCH: (&str, &str) = ("format", "pt");

/// What became of the entries that are not tensors.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Others {
    /// The names of those that are in the output.
    pub carried: Vec<String>,
    /// Those that are not, and free texts that are not.
    pub not_carried: Vec<NotCarried>,
    #[serde(skip)]
    target: Target,
}

/// An entry, or a free text, that is not in the output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct NotCarried {
    /// Its name.
    pub name: String,
    /// Why not.
    pub why: String,
    #[serde(skip)]
    what: What,
}

/// What is not carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Entry,
    FreeText,
}

impl What {
    /// So many of them, and whether they `is` or `are`.
    fn counted(self, count: usize) -> (String, &'static str) {
        let (one, many) = match self {
            Self::Entry => ("entry that is no tensor", "entries that are no tensors"),
            Self::FreeText => ("free text", "free texts"),
        };
        (counted(count, one, many).to_string(), if count == 1 { "is" } else { "are" })
    }
}

/// What an output is, as far as that is concerned which is no tensor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Target {
    /// Nothing is written, so nothing is lost.
    #[default]
    Nowhere,
    RankFiles,
    Dcp {
        /// Whether a file of whole tensors is written too.
        gathers: bool,
    },
    DcpSafetensors,
    Safetensors,
}

impl Target {
    /// Of a job: the directory is what keeps objects, if there is one.
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

    /// Returns `true` if it has a safetensors file, in whose header free texts are.
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
    /// What becomes of objects and of free texts in an output.
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
                    format!("{} files hold tensors only: --format dcp keeps it", target.name())
                }
                Content::PartOf(container) => container.why().to_owned(),
            };
            this.not_carried.push(NotCarried { name: object.name.clone(), why, what: What::Entry });
        }
        if !target.holds_texts() {
            let texts = texts.into_iter().flatten().map(|(key, text)| (&key[..], &text[..]));
            this.not_carried.extend(texts.filter(|text| *text != OF_PYTORCH).map(|(key, _)| NotCarried {
                name: key.to_owned(),
                why: format!("{} has no free texts: --format rank-files keeps it", target.name()),
                what: What::FreeText,
            }));
        }
        this
    }

    /// Refuses an output without what should be in the input and is not, unless what is left of it was asked for; with `strict` also one
    /// without what it cannot hold.
    pub(crate) fn check(&self, objects: &[Object], strict: bool) -> Result<(), Error> {
        let missing = |object: &&Object| {
            matches!(&object.content, Content::PartOf(Container::Missing)) && self.target != Target::Nowhere
        };
        if let Some(object) = objects.iter().find(missing) {
            let message = format!(
                "{}: --only leaves it out by name, and --dead, with the ranks that are dead, takes what is left",
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

    /// What is carried and what is not, a line each.
    pub fn lines(&self) -> Vec<String> {
        let carried = match self.carried.len() {
            0 => None,
            count => Some(format!("carried {}", What::Entry.counted(count).0)),
        };
        carried.into_iter().chain(self.lost()).collect()
    }

    /// A sentence for each reason, in the order in which they come.
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
        let sentence = |(first, named, count): (&NotCarried, Vec<String>, usize)| {
            let (counted, are) = first.what.counted(count);
            let more = if count > NAMED { ", .." } else { "" };
            let (named, target) = (named.join(", "), self.target.name());
            format!("{counted} {are} not in {target}: {named}{more} (--json has all): {}", first.why)
        };
        reasons.into_iter().map(sentence).collect()
    }
}
