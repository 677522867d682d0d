//! Planners, and their settings.
#![allow(unsafe_code, reason = "functions that C calls, with unmangled names")]

use std::ffi::c_char;
use std::sync::{Arc, LazyLock};

use reshard_kernels::DType;
use reshard_planner::{PlanCache, Profile, Topology};

use crate::error::{Fault, Status, body};
use crate::handles::{self, Handled};
use crate::memory::{text, text_if_any};
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

    /// Returns the planner of the library.
    pub(crate) fn rust(&self) -> &reshard_planner::Planner {
        &self.planner
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

/// The planner that is used where the caller passes none.
pub(crate) static USUAL: LazyLock<Planner> = LazyLock::new(|| Planner::new(reshard_planner::Planner::new()));

/// Makes a planner from its settings, such as `topology=h100 objective=bytes`; null is the default one.
///
/// Settings are `name=value`, separated by spaces: `topology` (`uniform`, `h100`, or the text of a network),
/// `objective` (`time`, `bytes` or `peak`), `max_peak_bytes` (the limit of the bytes on any rank), `groups`
/// (the only groups to use, separated by `|`), `deterministic` (`true` for reductions in rank order),
/// `arithmetic` (`kernels`, or `framework` for types that only the framework reduces) and `budget`
/// (units of work, or `none`).
///
/// # Safety
///
/// Every pointer is null or follows the rules at the top of `reshard.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_planner_new(settings: *const c_char, out: *mut *mut Planner) -> Status {
    body!(reshard_planner_new(out) {
        // SAFETY: as the caller promises.
        let settings = unsafe { text_if_any(settings, "settings") }?.unwrap_or_default();
        let planner = Planner::new(settings.parse()?);
        // SAFETY: as the caller promises.
        unsafe { handles::put(planner, out) }
    })
}

/// Makes a planner for the network of a measured profile, from the text of its TOML file.
///
/// `settings` are those of `reshard_planner_new` without `topology`; null are the default ones. The notation of a
/// network has no measured times, so `topology` cannot be a profile.
///
/// # Safety
///
/// Every pointer is null or follows the rules at the top of `reshard.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_planner_of_profile(
    profile: *const c_char,
    settings: *const c_char,
    out: *mut *mut Planner,
) -> Status {
    body!(reshard_planner_of_profile(out) {
        // SAFETY: as the caller promises.
        let (profile, settings) = unsafe { (text(profile, "profile")?, text_if_any(settings, "settings")?) };
        let settings = settings.unwrap_or_default();
        if settings.split_ascii_whitespace().any(|setting| setting.starts_with("topology=")) {
            let message = format!("`{settings}` has a topology; the network is that of the profile");
            return Err(Fault::refused("usage", message));
        }
        let network = Topology::try_from(profile.parse::<Profile>()?)?;
        let planner = Planner::new(settings.parse::<reshard_planner::Planner>()?.topology(network));
        // SAFETY: as the caller promises.
        unsafe { handles::put(planner, out) }
    })
}

/// Frees a planner; its plans stay valid. Null is ignored.
#[unsafe(no_mangle)]
pub extern "C" fn reshard_planner_free(planner: *mut Planner) -> Status {
    body!(reshard_planner_free() { handles::free(planner) })
}
