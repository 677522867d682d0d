//! Errors of reads at URLs: a one-line message, and the decision to repeat the request.

use std::error::Error;
use std::io;

use object_store::Error as StoreError;
use object_store::client::{HttpError, HttpErrorKind};

/// The longest message of a server that is shown, in characters.
const LONGEST: usize = 300;

/// The start of the crate's message for a request that it has repeated up to its limit.
const REPEATED: &str = "Error performing ";

/// The text before the status of a server's answer in the crate's message.
const STATUS: &str = "status code: ";

/// The metadata servers of Amazon, Google and Microsoft, which the crate queries if no credentials are set.
const WHO_AM_I: [&str; 3] = ["169.254.169.254", "metadata.google.internal", "169.254.170.2"];

#[derive(Debug)]
pub(super) enum Why {
    /// An error of the object store crate.
    Store(StoreError),
    /// The object has changed since it was opened.
    Changed,
    /// Fewer bytes arrived than were requested: received, requested.
    TooShort(usize, usize),
    /// More bytes arrived than this requested number.
    TooLong(usize),
    /// No memory for this number of bytes.
    Memory(usize),
}

impl Why {
    /// Returns `true` if a repeated request may succeed; requests that the crate has repeated are final.
    pub(super) fn may_pass(&self) -> bool {
        match self {
            Self::Store(error @ StoreError::Generic { .. }) => {
                !chain(error).any(|error| error.to_string().starts_with(REPEATED))
            }
            Self::TooShort(..) | Self::TooLong(_) => true,
            Self::Store(_) | Self::Changed | Self::Memory(_) => false,
        }
    }

    /// Returns a one-line error, without the queries of URLs, which may contain signatures.
    #[allow(clippy::wildcard_enum_match_arm, reason = "the others have the message of the crate")]
    pub(super) fn said(&self) -> io::Error {
        io::Error::other(match self {
            Self::Changed | Self::Store(StoreError::Precondition { .. }) => {
                "it was changed while it was read".to_owned()
            }
            Self::TooShort(came, asked) => {
                format!("the server repeatedly returns {came} bytes instead of the requested {asked}")
            }
            Self::TooLong(asked) => {
                format!("the server repeatedly returns more than the requested {asked} bytes")
            }
            Self::Memory(bytes) => format!("out of memory: cannot allocate {bytes} bytes"),
            Self::Store(StoreError::NotFound { .. }) => "there is no such object".to_owned(),
            Self::Store(
                error @ (StoreError::PermissionDenied { .. } | StoreError::Unauthenticated { .. }),
            ) => format!(
                "the server denies access{}; credentials are taken from the environment (AWS_.., GOOGLE_.., AZURE_..)",
                status(error).map_or_else(String::new, |status| format!(" ({status})"))
            ),
            Self::Store(StoreError::NotSupported { .. }) => {
                "its server does not support range requests, only whole files".to_owned()
            }
            Self::Store(error) => of_others(error),
        })
    }
}

/// Returns an error and its sources, down to the first cause.
fn chain<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error: &&'a (dyn Error + 'static)| (*error).source())
}

/// Returns the message for all other errors.
fn of_others(error: &StoreError) -> String {
    let text = error.to_string();
    if WHO_AM_I.iter().any(|server| text.contains(server)) {
        return "there are no credentials: neither in the environment (AWS_.., GOOGLE_.., AZURE_..; AWS_SKIP_SIGNATURE=true and the like for public data) nor from this machine".to_owned();
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
        HttpErrorKind::Timeout => "its server did not answer in time; RESHARD_PATIENCE sets for how many seconds a request is repeated".to_owned(),
        HttpErrorKind::Request | HttpErrorKind::Interrupted | HttpErrorKind::Decode | HttpErrorKind::Unknown | _ => format!("the connection to its server breaks repeatedly: {cause}"),
    }
}

/// Returns the status of a server's answer, and the text that came with it.
fn status(error: &StoreError) -> Option<String> {
    let said = chain(error)
        .map(ToString::to_string)
        .filter_map(|text| Some(text.split_once(STATUS)?.1.to_owned()))
        .last()?;
    // Only the text of XML: its element names are of no use in a message.
    let mut words = String::new();
    for (at, part) in said.split('<').enumerate() {
        let text = if at == 0 { part } else { part.split_once('>').map_or("", |(_, text)| text) };
        words.extend([" ", text]);
    }
    Some(plain(words.trim().trim_end_matches(':')))
}

/// Returns a text on one line, without the queries of URLs, and of limited length.
fn plain(text: &str) -> String {
    let words = text.split_whitespace().map(|word| match word.split_once('?') {
        Some((before, _)) if before.contains("://") => before,
        _ => word,
    });
    let text = words.collect::<Vec<_>>().join(" ");
    text.chars().filter(|letter| !letter.is_control()).take(LONGEST).collect()
}
