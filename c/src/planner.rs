//! Planners, and how plans are asked for.
#![allow(unsafe_code, reason = "functions that C calls, by names of their own")]

use std::ffi::c_char;
use std::ptr;
use std::sync::{Arc, LazyLock};

use reshard_kernels::DType;
use reshard_planner::{Arithmetic, PlanCache, SearchBudget};

use crate::error::{Status, body};
use crate::handles::{self, Handled};
use crate::memory::{sized, text_if_any};
use crate::sharding::Sharding;

/// How many plans a planner keeps.
const KEPT: usize = 4096;

/// Makes plans for one network and one objective, and keeps those that it made.
#[derive(Debug)]
pub struct Planner {
    planner: reshard_planner::Planner,
    cache: PlanCache,
}

impl Planner {
    fn new(planner: reshard_planner::Planner) -> Planner {
        Planner { planner, cache: PlanCache::new(KEPT) }
    }

    /// The plan, made once.
    pub(crate) fn plan(
        &self,
        from: &Sharding,
        to: &Sharding,
        dtype: DType,
    ) -> Result<Arc<reshard_planner::Plan>, reshard_planner::Error> {
        self.cache.plan(&self.planner, &from.0, &to.0, dtype)
    }
}

impl Handled for Planner {
    const NAME: &'static str = "planner";
}

/// How plans are asked for. Zeros and nulls are what is usual.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Options {
    /// The `sizeof` of this struct, set by the caller.
    pub size: usize,
    /// The network, such as `h100`, or its text.
    pub topology: *const c_char,
    /// `time`, `bytes` or `peak`.
    pub objective: *const c_char,
    /// What no rank may exceed; 0 for no limit.
    pub max_peak_bytes: u64,
    /// The units of work that a search may take; 0 for what is usual.
    pub budget: u64,
    /// Whether all reductions are in one order.
    pub deterministic: u8,
    /// Whether a framework reduces, which knows more element types than the library.
    pub framework_arithmetic: u8,
}

/// The planner of those who give none.
pub(crate) static USUAL: LazyLock<Planner> = LazyLock::new(|| Planner::new(reshard_planner::Planner::new()));

/// A planner; without options, which may be null, the usual one.
///
/// # Safety
///
/// Pointers are null, or as `reshard.h` says at its beginning.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_planner_new(options: *const Options, out: *mut *mut Planner) -> Status {
    body!(reshard_planner_new(out) {
        let none = Options {
            size: size_of::<Options>(),
            topology: ptr::null(),
            objective: ptr::null(),
            max_peak_bytes: 0,
            budget: 0,
            deterministic: 0,
            framework_arithmetic: 0,
        };
        let options = if options.is_null() {
            none
        } else {
            // SAFETY: as the caller promises.
            unsafe { sized(options, none, size_of::<Options>(), "options") }?
        };
        let mut planner = reshard_planner::Planner::new().deterministic(options.deterministic != 0);
        // SAFETY: as the caller promises.
        let words = unsafe {
            (text_if_any(options.topology, "options->topology")?, text_if_any(options.objective, "options->objective")?)
        };
        if let Some(topology) = words.0 {
            planner = planner.topology(topology.parse()?);
        }
        if let Some(objective) = words.1 {
            planner = planner.objective(objective.parse()?);
        }
        if options.max_peak_bytes > 0 {
            planner = planner.max_peak_bytes(options.max_peak_bytes);
        }
        if options.budget > 0 {
            planner = planner.budget(SearchBudget::new(options.budget));
        }
        if options.framework_arithmetic != 0 {
            planner = planner.arithmetic(Arithmetic::Framework);
        }
        // SAFETY: as the caller promises.
        unsafe { handles::put(Planner::new(planner), out) }
    })
}

/// Frees a planner; its plans stay; null is nothing.
#[unsafe(no_mangle)]
pub extern "C" fn reshard_planner_free(planner: *mut Planner) -> Status {
    body!(reshard_planner_free() { handles::free(planner) })
}
