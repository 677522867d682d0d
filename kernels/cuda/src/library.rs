//! CUDA's libraries, searched once: a missing one is an error value.
//!
//! The binding panics if a library, or a symbol of one, is missing. Each library is therefore probed before
//! its first use, and every call catches panics without printing them. The first call installs a hook before
//! the one that prints panics; it passes on all panics except those of the binding.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Once, OnceLock};

use crate::Error;

thread_local! {
    /// `true` while this thread is in a call of the binding.
    static CALLING: Cell<bool> = const { Cell::new(false) };
}

/// Calls the binding; catches a panic without printing its message, which the error reports.
fn caught<T>(call: impl FnOnce() -> T) -> std::thread::Result<T> {
    static HOOK: Once = Once::new();
    if std::thread::panicking() {
        // No hook can be set, and this thread prints already.
        return catch_unwind(AssertUnwindSafe(call));
    }
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !CALLING.get() {
                before(panic);
            }
        }));
    });
    let outer = CALLING.replace(true);
    let result = catch_unwind(AssertUnwindSafe(call));
    CALLING.set(outer);
    result
}

/// A library of CUDA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Library {
    /// The driver, `libcuda`.
    Driver,
    /// The compiler, `libnvrtc`.
    Nvrtc,
    /// The collectives, `libnccl`.
    #[cfg(feature = "nccl")]
    Nccl,
}

impl Library {
    fn name(self) -> &'static str {
        match self {
            Library::Driver => "cuda",
            Library::Nvrtc => "nvrtc",
            #[cfg(feature = "nccl")]
            Library::Nccl => "nccl",
        }
    }

    fn probe(self) -> bool {
        let present = || match self {
            // SAFETY: opens the library and closes it again; CUDA's libraries may be opened by any thread.
            #[allow(unsafe_code, reason = "the binding's probe of a library")]
            Library::Driver => unsafe { cudarc::driver::sys::is_culib_present() },
            // SAFETY: as above.
            #[allow(unsafe_code, reason = "the binding's probe of a library")]
            Library::Nvrtc => unsafe { cudarc::nvrtc::sys::is_culib_present() },
            // SAFETY: as above.
            #[cfg(feature = "nccl")]
            #[allow(unsafe_code, reason = "the binding's probe of a library")]
            Library::Nccl => unsafe { cudarc::nccl::sys::is_culib_present() },
        };
        caught(present).unwrap_or(false)
    }

    /// Succeeds if the library can be loaded; the result is cached per process.
    ///
    /// Errors: [`Error::Library`], which names the library and the searched paths.
    pub fn check(self) -> Result<(), Error> {
        static DRIVER: OnceLock<bool> = OnceLock::new();
        static NVRTC: OnceLock<bool> = OnceLock::new();
        let found = match self {
            Library::Driver => DRIVER.get_or_init(|| self.probe()),
            Library::Nvrtc => NVRTC.get_or_init(|| self.probe()),
            #[cfg(feature = "nccl")]
            Library::Nccl => {
                static NCCL: OnceLock<bool> = OnceLock::new();
                NCCL.get_or_init(|| self.probe())
            }
        };
        if *found {
            return Ok(());
        }
        let path = std::env::var("LD_LIBRARY_PATH").unwrap_or_default();
        let way_out = match self {
            Library::Driver => "install NVIDIA's driver, or use another engine",
            Library::Nvrtc => "install CUDA, or its compiler alone as the Python package nvidia-cuda-nvrtc",
            #[cfg(feature = "nccl")]
            Library::Nccl => {
                "install NCCL, or use another engine; if only libnccl.so.2 exists, as in the Python package \
                 nvidia-nccl, link it as libnccl.so"
            }
        };
        let name = self.name();
        Err(Error::Library {
            reason: format!(
                "lib{name}.so was not found in the system's library paths or in LD_LIBRARY_PATH={path:?}; {way_out}"
            ),
        })
    }

    /// Calls into the library; a panic in the binding, such as for a missing symbol, is an error.
    ///
    /// Errors: those of the call, and [`Error::Library`].
    pub fn call<T>(self, call: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        self.check()?;
        caught(call).unwrap_or_else(|panic| {
            let said = panic.downcast_ref::<String>().map(String::as_str);
            let said = said.or(panic.downcast_ref::<&str>().copied()).unwrap_or("no reason given");
            Err(Error::Library { reason: format!("lib{}.so does not work: {said}", self.name()) })
        })
    }
}
