//! Who watches a job.

use super::error::{Error, ErrorKind};
use super::staging;

/// Whom a job tells how far it is, and what went wrong; `()` does not listen.
///
/// ```
/// use reshard_checkpoint::{Job, Observer};
///
/// struct Counted(u64);
/// impl Observer for Counted {
///     fn moved(&mut self, bytes: u64) {
///         self.0 += bytes;
///     }
/// }
/// let mut counted = Counted(0);
/// let report = Job::default().run(&mut counted)?.expect("one process reports");
/// assert_eq!(counted.0, report.bytes);
/// # Ok::<(), reshard_checkpoint::Error>(())
/// ```
pub trait Observer {
    /// Everything is decided, and so many bytes of tensors are to come.
    fn on_start(&mut self, _bytes: u64) {}

    /// The tensor of this name is read; it is exchanged alone or with others.
    fn on_tensor(&mut self, _tensor: &str) {}

    /// So many more bytes of tensors are where they should be, verified.
    fn on_progress(&mut self, _bytes: u64) {}

    /// Whether the job is to end now; asked after each [`moved`](Observer::moved). It then fails with the kind `stopped`, and what it
    /// would have made is not there.
    ///
    /// ```
    /// use reshard_checkpoint::{Checkpoint, Observer};
    ///
    /// struct Impatient;
    /// impl Observer for Impatient {
    ///     fn stops(&self) -> bool {
    ///         true
    ///     }
    /// }
    /// let error = Checkpoint::open(None)?.verify(&mut Impatient).err().unwrap();
    /// assert_eq!((error.kind(), error.status()), ("stopped", 1));
    /// # Ok::<(), reshard_checkpoint::Error>(())
    /// ```
    fn is_cancelled(&self) -> bool {
        false
    }

    /// All are.
    fn on_finish(&mut self) {}

    /// The job fails with this error, which it returns later.
    ///
    /// A process of a job says it here at once: its launcher may end everything as soon as one process has left.
    fn on_error(&mut self, _error: &Error) {}
}

impl Observer for () {}

/// Tells that so many more bytes are where they should be; an error if that was enough.
pub(crate) fn moved(observer: &mut dyn Observer, bytes: u64) -> Result<(), Error> {
    observer.on_progress(bytes);
    if observer.is_cancelled() {
        return Err(Error::failed("stopped", "whoever watches the job has stopped it"));
    }
    Ok(())
}

/// Tells an error, unless another process does.
pub(crate) fn told(error: Error, observer: &mut dyn Observer) -> Error {
    // Of files that are removed under it a job says nothing.
    staging::unless_abandoned();
    match error.class() {
        ErrorKind::Refused | ErrorKind::Failed => observer.on_error(&error),
        ErrorKind::ToldElsewhere(_) => {}
    }
    error
}
