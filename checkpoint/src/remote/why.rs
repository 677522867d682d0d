//! Why something at a URL was not read, in one sentence, and whether it may be another when it is asked for again.

use std::error::Error;
use std::io;

use object_store::Error as StoreError;
use object_store::client::{HttpError, HttpErrorKind};

/// A longer sentence of a server is cut.
const LONGEST: usize = 300;

/// How the crate begins what it says of a question that it has repeated as often as it may.
const REPEATED: &str = "Error performing ";

/// What the crate says before the status that a server has answered with.
const STATUS: &str = "status code: ";

/// Where machines of Amazon, Google and Microsoft ask who they are, which is asked where the environment says nothing.
const WHO_AM_I: [&str; 3] = ["169.254.169.254", "metadata.google.internal", "169.254.170.2"];

#[derive(Debug)]
pub(super) enum Why {
    /// What the crate says.
    Store(StoreError),
    /// The object is another than the one that was opened.
    Changed,
    /// So many bytes came of so many.
    TooShort(usize, usize),
    /// More bytes came than so many.
    TooLong(usize),
    /// There is no memory for so many.
    Memory(usize),
}

impl Why {
    /// Whether the next answer may be another. What the crate has repeated is not repeated here.
    pub(super) fn may_pass(&self) -> bool {
        match self {
            Self::Store(error @ StoreError::Generic { .. }) => {
                !chain(error).any(|error| error.to_string().starts_with(REPEATED))
            }
            Self::TooShort(..) | Self::TooLong(_) => true,
            Self::Store(_) | Self::Changed | Self::Memory(_) => false,
        }
    }

    /// In one sentence, without what follows a `?` in a URL: that may be what lets one in.
    #[allow(clippy::wildcard_enum_match_arm, reason = "the others are said in the words of the crate")]
    pub(super) fn said(&self) -> io::Error {
        io::Error::other(match self {
            Self::Changed | Self::Store(StoreError::Precondition { .. }) => {
                "it was changed while it was read".to_owned()
            }
            Self::TooShort(came, asked) => {
                format!("again and again the server gives {came} bytes where {asked} are asked for")
            }
            Self::TooLong(asked) => {
                format!("again and again the server gives more bytes than the {asked} that are asked for")
            }
            Self::Memory(bytes) => format!("there is no memory for {bytes} bytes of it"),
            Self::Store(StoreError::NotFound { .. }) => "there is no such object".to_owned(),
            Self::Store(
                error @ (StoreError::PermissionDenied { .. } | StoreError::Unauthenticated { .. }),
            ) => format!(
                "the server does not let us read it{}: credentials are taken from the environment (AWS_.., GOOGLE_.., AZURE_..)",
                status(error).map_or_else(String::new, |status| format!(" ({status})"))
            ),
            Self::Store(StoreError::NotSupported { .. }) => {
                "its server gives no ranges of a file, only all of it".to_owned()
            }
            Self::Store(error) => of_others(error),
        })
    }
}

/// An error, and what it comes from, to the first cause.
fn chain<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error: &&'a (dyn Error + 'static)| (*error).source())
}

/// What has no word of its own.
fn of_others(error: &StoreError) -> String {
    let text = error.to_string();
    if WHO_AM_I.iter().any(|server| text.contains(server)) {
        return "there are no credentials: the environment says none (AWS_.., GOOGLE_.., AZURE_..; AWS_SKIP_SIGNATURE=true and the like for what is public), and this machine has none of its own".to_owned();
    }
    if let Some(status) = status(error) {
        return format!("its server answers with status {status}");
    }
    let Some(http) = chain(error).find_map(|error| error.downcast_ref::<HttpError>()) else {
        return plain(&text);
    };
    let cause = chain(http).last().map_or_else(String::new, |cause| plain(&cause.to_string()));
    match http.kind() {
        HttpErrorKind::Connect => format!("its server cannot be reached: {cause}"),
        HttpErrorKind::Timeout => "its server says nothing for too long (RESHARD_PATIENCE says how many seconds a question is repeated)".to_owned(),
        HttpErrorKind::Request | HttpErrorKind::Interrupted | HttpErrorKind::Decode | HttpErrorKind::Unknown | _ => format!("the connection to its server breaks again and again: {cause}"),
    }
}

/// The status that a server has answered with, and what it said with it.
fn status(error: &StoreError) -> Option<String> {
    let said = chain(error)
        .map(ToString::to_string)
        .filter_map(|text| Some(text.split_once(STATUS)?.1.to_owned()))
        .last()?;
    // Of XML what stands in it: its names say nothing to people.
    let mut words = String::new();
    for (at, part) in said.split('<').enumerate() {
        let text = if at == 0 { part } else { part.split_once('>').map_or("", |(_, text)| text) };
        words.extend([" ", text]);
    }
    Some(plain(words.trim().trim_end_matches(':')))
}

/// A text on one line, without what may let one in, and not too long.
fn plain(text: &str) -> String {
    let words = text.split_whitespace().map(|word| match word.split_once('?') {
        Some((before, _)) if before.contains("://") => before,
        _ => word,
    });
    let text = words.collect::<Vec<_>>().join(" ");
    text.chars().filter(|letter| !letter.is_control()).take(LONGEST).collect()
}
