//! A bounded cache of plans, shared by threads.
//!
//! A plan is a pure function of source, target, element type and planner, so that a cache needs no
//! invalidation. There are two kinds of lookup:
//!
//! ```text
//! by value        hash source, target, size, planner   ->  compare with the key  ->  Arc<Plan>
//! by handle       ids of interned source, target, planner, and size              ->  Arc<Plan>
//! ```
//!
//! Interning a value gives it an id that is never reused. Equal ids mean equal values, so a key is compared
//! by four numbers only. A value that is interned again after its eviction gets another id, and its plans are
//! then found by value.
//!
//! **Bounded**: each table has two generations of half the capacity. A hit in the old generation promotes the
//! entry to the young one. A full young generation becomes the old one, and entries that were not used since
//! are dropped. Readers share a lock, and write nothing where they hit the young generation.

use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use crate::Error;
use reshard_kernels::DType;

use crate::hash::{WordHasher, WordMap};
use crate::plan::Plan;
use crate::planner::Planner;
use reshard_sharding::Sharding;

/// A value with an id, made by [`PlanCache::intern`] and [`PlanCache::intern_planner`].
///
/// Equal ids mean equal values.
#[derive(Clone, Debug)]
#[doc(hidden)]
pub struct Interned<T> {
    id: u64,
    value: Arc<T>,
}

impl<T> Interned<T> {
    fn new(id: u64, value: T) -> Interned<T> {
        Interned { id, value: Arc::new(value) }
    }

    /// Returns the interned value.
    pub fn value(&self) -> &T {
        &self.value
    }
}

/// Two generations of entries.
#[derive(Debug)]
struct Generations<K, V> {
    young: WordMap<K, V>,
    old: WordMap<K, V>,
}

/// A bounded map that retains the most recently used entries.
#[derive(Debug)]
struct Table<K, V> {
    entries: RwLock<Generations<K, V>>,
    /// Maximum number of entries per generation.
    half: usize,
}

impl<K: Hash + Eq, V: Clone> Table<K, V> {
    /// Creates a table of at most `capacity` entries.
    fn new(capacity: usize) -> Table<K, V> {
        let entries = RwLock::new(Generations { young: WordMap::default(), old: WordMap::default() });
        Table { entries, half: (capacity / 2).max(1) }
    }

    /// Returns the value of a key, from either generation.
    fn get(&self, key: &K) -> Option<V> {
        {
            let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(v) = entries.young.get(key) {
                return Some(v.clone());
            }
            if entries.old.is_empty() {
                return None;
            }
        }
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        let (k, v) = entries.old.remove_entry(key)?;
        self.put(&mut entries, k, v.clone());
        Some(v)
    }

    /// Inserts a value; entries that were used least recently may be evicted.
    fn insert(&self, key: K, value: V) {
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        self.put(&mut entries, key, value);
    }

    fn put(&self, entries: &mut Generations<K, V>, key: K, value: V) {
        if entries.young.len() >= self.half && !entries.young.contains_key(&key) {
            entries.old = core::mem::take(&mut entries.young);
        }
        entries.young.insert(key, value);
    }

    /// Returns the number of entries.
    fn len(&self) -> usize {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        entries.young.len() + entries.old.len()
    }
}

/// Plans by value, in buckets of equal hash; the plan itself is the key.
type ByValue = Table<u64, Arc<Plan>>;

/// A cache of plans by source, target, element type and planner.
///
/// ```
/// use reshard_kernels::DType;
/// use reshard_sharding::{Mesh, Sharding};
/// use reshard_planner::{PlanCache, Planner};
/// let mesh: Mesh = "x=2,y=2".parse()?;
/// let from = Sharding::parse(&mesh, &[64, 64], "S(0),R")?;
/// let to = Sharding::parse(&mesh, &[64, 64], "R,S(1)")?;
/// let (cache, planner) = (PlanCache::new(1024), Planner::new());
/// let first = cache.plan(&planner, &from, &to, DType::F32)?;
/// assert!(std::sync::Arc::ptr_eq(&first, &cache.plan(&planner, &from, &to, DType::F32)?));
/// // By handle, only four numbers are hashed.
/// let (p, a, b) = (cache.intern_planner(&planner), cache.intern(&from), cache.intern(&to));
/// assert!(std::sync::Arc::ptr_eq(&first, &cache.plan_interned(&p, &a, &b, DType::F32)?));
/// # Ok::<(), reshard_planner::Error>(())
/// ```
#[derive(Debug)]
pub struct PlanCache {
    by_value: ByValue,
    by_handle: Table<[u64; 4], Arc<Plan>>,
    shardings: Table<Sharding, Interned<Sharding>>,
    planners: Table<u64, Interned<Planner>>,
    next: AtomicU64,
}

impl PlanCache {
    /// Creates a cache of at most `capacity` plans by value and by handle.
    ///
    /// It interns at most `capacity` shardings and as many planners.
    pub fn new(capacity: usize) -> PlanCache {
        PlanCache {
            by_value: Table::new(capacity),
            by_handle: Table::new(capacity),
            shardings: Table::new(capacity),
            planners: Table::new(capacity),
            next: AtomicU64::new(0),
        }
    }

    /// Returns the cached plan, or makes and caches it.
    ///
    /// Errors are not cached. Two threads that request an unknown plan at once may both make it, and both
    /// make the same one.
    pub fn plan(
        &self,
        planner: &Planner,
        from: &Sharding,
        to: &Sharding,
        dtype: DType,
    ) -> Result<Arc<Plan>, Error> {
        let mut hasher = WordHasher::default();
        from.hash(&mut hasher);
        to.hash(&mut hasher);
        hasher.write_u8(dtype as u8);
        planner.options().hash_word(&mut hasher);
        let key = hasher.finish();
        if let Some(plan) = self.by_value.get(&key)
            && plan.dtype == dtype
            && *plan.from == *from
            && *plan.to == *to
            && plan.options == *planner.options()
        {
            return Ok(plan);
        }
        let plan = Arc::new(planner.plan(from, to, dtype)?);
        self.by_value.insert(key, Arc::clone(&plan));
        Ok(plan)
    }

    /// Returns the sharding with its id.
    #[doc(hidden)]
    pub fn intern(&self, sharding: &Sharding) -> Interned<Sharding> {
        if let Some(known) = self.shardings.get(sharding) {
            return known;
        }
        let new = Interned::new(self.next.fetch_add(1, Ordering::Relaxed), sharding.clone());
        self.shardings.insert(sharding.clone(), new.clone());
        new
    }

    /// Returns the planner with its id.
    #[doc(hidden)]
    pub fn intern_planner(&self, planner: &Planner) -> Interned<Planner> {
        let mut hasher = WordHasher::default();
        planner.options().hash_word(&mut hasher);
        let key = hasher.finish();
        if let Some(known) = self.planners.get(&key).filter(|known| *known.value == *planner) {
            return known;
        }
        let new = Interned::new(self.next.fetch_add(1, Ordering::Relaxed), planner.clone());
        self.planners.insert(key, new.clone());
        new
    }

    /// Returns the plan, found by ids alone, or else by value, and makes it if it is unknown.
    ///
    /// Requires that this cache interned all three.
    #[doc(hidden)]
    pub fn plan_interned(
        &self,
        planner: &Interned<Planner>,
        from: &Interned<Sharding>,
        to: &Interned<Sharding>,
        dtype: DType,
    ) -> Result<Arc<Plan>, Error> {
        let key = [from.id, to.id, planner.id, dtype as u64];
        if let Some(plan) = self.by_handle.get(&key) {
            return Ok(plan);
        }
        let plan = self.plan(&planner.value, &from.value, &to.value, dtype)?;
        self.by_handle.insert(key, Arc::clone(&plan));
        Ok(plan)
    }

    /// Returns the number of plans that are cached by value.
    #[doc(hidden)]
    pub fn len(&self) -> usize {
        self.by_value.len()
    }

    /// Returns `true` if no plan is cached.
    #[doc(hidden)]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Objective, Topology};
    use reshard_kernels::DType;
    use reshard_sharding::Mesh;

    #[test]
    fn it_is_bounded_and_keeps_what_is_used() {
        let mesh: Mesh = "x=2".parse().unwrap();
        let cache = PlanCache::new(8);
        let planner = Planner::new();
        let of = |n: usize, p: &str| Sharding::parse(&mesh, &[2 * n + 2], p).unwrap();
        let hot = cache.plan(&planner, &of(0, "S(0)"), &of(0, "R"), DType::F32).unwrap();
        for n in 1..100 {
            cache.plan(&planner, &of(n, "S(0)"), &of(n, "R"), DType::F32).unwrap();
            assert!(cache.len() <= 8);
            assert!(Arc::ptr_eq(
                &hot,
                &cache.plan(&planner, &of(0, "S(0)"), &of(0, "R"), DType::F32).unwrap()
            ));
        }
    }

    #[test]
    fn whatever_differs_is_another_plan() {
        let mesh: Mesh = "x=2,y=2".parse().unwrap();
        let of = |p: &str| Sharding::parse(&mesh, &[8, 8], p).unwrap();
        let cache = PlanCache::new(100);
        let planners = [
            Planner::new(),
            Planner::new().topology(Topology::h100()),
            Planner::new().objective(Objective::Bytes),
            Planner::new().max_peak_bytes(1 << 20),
            Planner::new().deterministic(true),
            Planner::new().with_groups([mesh.group_of_axes(&["x", "y"]).unwrap()]),
        ];
        let pairs = [(of("P,P"), of("R,R")), (of("R,R"), of("S(0),S(1)")), (of("S(0),S(0)"), of("R,R"))];
        for _ in 0..2 {
            for planner in &planners {
                for (from, to) in &pairs {
                    for dtype in [DType::BF16, DType::F32, DType::I32] {
                        let known = cache.plan(planner, from, to, dtype).unwrap();
                        let ids = (cache.intern_planner(planner), cache.intern(from), cache.intern(to));
                        let by_id = cache.plan_interned(&ids.0, &ids.1, &ids.2, dtype).unwrap();
                        assert!(Arc::ptr_eq(&known, &by_id));
                        assert_eq!(known.to_string(), planner.plan(from, to, dtype).unwrap().to_string());
                        assert_eq!(
                            (known.options(), known.from(), known.to()),
                            (planner.options(), from, to)
                        );
                    }
                }
            }
        }
        assert_eq!(cache.len(), 6 * 3 * 3);
    }

    #[test]
    fn threads_get_the_same_plans() {
        let mesh: Mesh = "x=2,y=2".parse().unwrap();
        let of = |p: &str| Sharding::parse(&mesh, &[8, 8], p).unwrap();
        let cache = PlanCache::new(4);
        let pairs = [(of("P,P"), of("R,R")), (of("R,S(0)"), of("S(0),S(1)")), (of("S(0),S(0)"), of("R,R"))];
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for (from, to) in pairs.iter().cycle().take(300) {
                        let plan = cache.plan(&Planner::new(), from, to, DType::F32).unwrap();
                        assert_eq!((plan.from(), plan.to()), (from, to));
                    }
                });
            }
        });
        assert!(cache.len() <= 4);
    }
}
