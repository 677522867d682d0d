//! Compiles a program's source to a device's instructions with NVRTC, once per process.

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char};
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use cudarc::nvrtc::{result, sys};

use crate::library::Library;
use crate::{Error, Program};

/// A compute capability: 9.0 is `sm_90`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Arch {
    /// 9 of 9.0.
    pub major: u32,
    /// 0 of 9.0.
    pub minor: u32,
}

impl Arch {
    /// H100 and H200.
    pub const SM_90: Arch = Arch { major: 9, minor: 0 };
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sm_{}{}", self.major, self.minor)
    }
}

/// A compiled program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binary {
    /// The image that the driver loads.
    pub cubin: Vec<u8>,
    /// The compiler's output: registers, spills and shared memory of each kernel.
    pub log: String,
}

/// Compiles a program, or returns the cached binary.
///
/// Errors: [`Error::Library`] without NVRTC, [`Error::Compile`] with its log.
pub fn compile(program: Program, arch: Arch) -> Result<Arc<Binary>, Error> {
    type Known = Mutex<HashMap<(Program, Arch), Arc<Binary>>>;
    static KNOWN: OnceLock<Known> = OnceLock::new();
    // Its entries are complete, also after a panic elsewhere.
    let mut known = KNOWN.get_or_init(Known::default).lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(binary) = known.get(&(program, arch)) {
        return Ok(binary.clone());
    }
    let source =
        program.source().ok_or_else(|| Error::Compile { log: format!("{program:?} has no kernels") })?;
    let binary = Arc::new(Library::Nvrtc.call(|| translate(&source, arch))?);
    known.insert((program, arch), binary.clone());
    Ok(binary)
}

/// An NVRTC program, destroyed on drop.
struct Handle(sys::nvrtcProgram);

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: created by `create_program` and destroyed here only. A failure needs no further action.
        #[allow(unsafe_code, reason = "the binding has no safe call that destroys a program")]
        let _ = unsafe { result::destroy_program(self.0) };
    }
}

fn failed(call: &str, e: result::NvrtcError) -> Error {
    Error::Compile { log: format!("{call}: {:?}", e.0) }
}

fn text(chars: &[c_char]) -> String {
    let bytes: Vec<u8> = chars.iter().map(|&c| c as u8).collect();
    CStr::from_bytes_until_nul(&bytes).map(|s| s.to_string_lossy().trim().to_owned()).unwrap_or_default()
}

#[allow(unsafe_code, reason = "calls of NVRTC on a program that lives")]
fn translate(source: &str, arch: Arch) -> Result<Binary, Error> {
    let source = CString::new(source).map_err(|e| Error::Compile { log: e.to_string() })?;
    let program = Handle(result::create_program(&source, None).map_err(|e| failed("nvrtcCreateProgram", e))?);
    let options = [
        format!("--gpu-architecture={arch}"),
        "--std=c++17".to_owned(),
        // Each product and sum rounds by itself, as on the host.
        "--fmad=false".to_owned(),
        "--ptxas-options=-v".to_owned(),
    ];
    // SAFETY: the program lives, and so does its source, until the end of this function.
    let compiled = unsafe { result::compile_program(program.0, &options) };
    // SAFETY: the program lives.
    let log = unsafe { result::get_program_log(program.0) }.map(|log| text(&log)).unwrap_or_default();
    compiled.map_err(|e| Error::Compile { log: format!("{:?}: {log}", e.0) })?;
    let mut size = 0;
    // SAFETY: the program lives and is compiled; the size is written.
    unsafe { sys::nvrtcGetCUBINSize(program.0, &raw mut size) }
        .result()
        .map_err(|e| failed("nvrtcGetCUBINSize", e))?;
    let mut cubin = vec![0u8; size];
    // SAFETY: the buffer has the size that was just queried.
    unsafe { sys::nvrtcGetCUBIN(program.0, cubin.as_mut_ptr().cast()) }
        .result()
        .map_err(|e| failed("nvrtcGetCUBIN", e))?;
    Ok(Binary { cubin, log })
}
