//! Planners, and their options.
#![allow(unsafe_code, reason = "functions that C calls, with unmangled names")]

use std::ffi::c_char;
use std::ptr;
use std::sync::{Arc, LazyLock};

use reshard_kernels::DType;
use reshard_planner::{Arithmetic, PlanCache, SearchBudget};

use crate::error::{Status, body};
use crate::handles::{self, Handled};
use crate::memory::{sized, text_if_any};
use crate::sharding::Sharding;

/// The number of plans that a planner caches.
const KEPT: usize = 4096;

/// A planner for one network and one objective, with a cache of its plans.
#[derive(Debug)]
pub struct Planner {
    planner: reshard_planner::Planner,
    cache: PlanCache,
}

impl Planner {
    fn new(planner: reshard_planner::Planner) -> Planner {
        Planner { planner, cache: PlanCache::new(KEPT) }
    }

    /// Returns the plan, from the cache where it has it.
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

/// The options of a planner; zero or null selects the default.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Options {
    /// The `sizeof` of this struct, set by the caller.
    pub size: usize,
    /// The network, such as `h100`, or its text.
    pub topology: *const c_char,
    /// `time`, `bytes` or `peak`.
    pub objective: *const c_char,
    /// The limit of the bytes that any rank holds at one time; 0 for none.
    pub max_peak_bytes: u64,
    /// The limit of the search, in units of work; 0 for the default.
    pub budget: u64,
    /// 1 to do all reductions in one fixed order, else 0.
    pub deterministic: u8,
    /// 1 if a framework does the reductions, which supports more element types than the library; else 0.
    pub framework_arithmetic: u8,
}

/// The planner that is used where the caller passes none.
pub(crate) static USUAL: LazyLock<Planner> = LazyLock::new(|| Planner::new(reshard_planner::Planner::new()));

/// Makes a planner; `options` may be null, for the default one.
///
/// # Safety
///
/// Every pointer is null or follows the rules at the top of `reshard.h`.
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

/// Frees a planner; its plans stay valid. Null is ignored.
#[unsafe(no_mangle)]
pub extern "C" fn reshard_planner_free(planner: *mut Planner) -> Status {
    body!(reshard_planner_free() { handles::free(planner) })
}
