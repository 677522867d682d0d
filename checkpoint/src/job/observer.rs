//! Observers of a job.

use crate::error::{Error, ErrorClass, ErrorKind};
use crate::write::staging;

/// Callbacks for the progress and errors of a job; `()` ignores them.
///
/// ```
/// use reshard_checkpoint::{ReshardJob, Observer};
///
/// struct Counted(u64);
/// impl Observer for Counted {
///     fn on_progress(&mut self, bytes: u64) {
///         self.0 += bytes;
///     }
/// }
/// let mut counted = Counted(0);
/// let report = ReshardJob::default().run(&mut counted)?.expect("one process reports");
/// assert_eq!(counted.0, report.bytes);
/// # Ok::<(), reshard_checkpoint::Error>(())
/// ```
pub trait Observer {
    /// The job begins: all decisions are made, and `_bytes` bytes of tensors will be processed.
    fn on_start(&mut self, _bytes: u64) {}

    /// The tensor of this name is read; it is exchanged alone or with others.
    fn on_tensor(&mut self, _tensor: &str) {}

    /// `_bytes` more bytes of tensors have been written and verified.
    fn on_progress(&mut self, _bytes: u64) {}

    /// Returns `true` to stop the job; called after each [`on_progress`](Observer::on_progress).
    ///
    /// The job then fails with the kind `stopped`, and leaves no output.
    ///
    /// ```
    /// use reshard_checkpoint::{Checkpoint, ErrorKind, Observer};
    ///
    /// struct Impatient;
    /// impl Observer for Impatient {
    ///     fn is_cancelled(&self) -> bool {
    ///         true
    ///     }
    /// }
    /// let error = Checkpoint::open(None)?.verify(&mut Impatient).err().unwrap();
    /// assert_eq!((error.code(), error.kind()), ("stopped", ErrorKind::Cancelled));
    /// # Ok::<(), reshard_checkpoint::Error>(())
    /// ```
    fn is_cancelled(&self) -> bool {
        false
    }

    /// All bytes have been processed.
    fn on_finish(&mut self) {}

    /// The job fails with this error, which it returns later.
    ///
    /// A process of a job reports it here at once: its launcher may end everything as soon as one process has
    /// left.
    fn on_error(&mut self, _error: &Error) {}
}

impl Observer for () {}

/// Reports `bytes` more processed bytes; an error if the observer stops the job.
pub(crate) fn moved(observer: &mut dyn Observer, bytes: u64) -> Result<(), Error> {
    observer.on_progress(bytes);
    if observer.is_cancelled() {
        return Err(Error::failed(ErrorKind::Cancelled, "stopped", "cancelled by the observer"));
    }
    Ok(())
}

/// Reports an error, unless another process reports it.
pub(crate) fn told(error: Error, observer: &mut dyn Observer) -> Error {
    // A job whose files were removed reports nothing about them.
    staging::unless_abandoned();
    match error.class() {
        ErrorClass::Refused | ErrorClass::Failed => observer.on_error(&error),
        ErrorClass::ToldElsewhere(_) => {}
    }
    error
}
