//! Paths that gather on one side of the slow level: once per replica of the target, or before anything leaves.

use reshard_layout::AxisStride;
use smallvec::SmallVec;

use super::{Legs, Ways, cuts_of, no_group, pieces};
use crate::Error;
use crate::candidates::Leg;
use crate::candidates::region_steps::Proposed;
use crate::model::network::Network;
use reshard_sharding::Sharding;

impl Ways<'_, '_> {
    /// Returns paths for a replicated target: one copy of each block goes in, and is shared there.
    ///
    /// With `A` some of the replicated axes of the target, and `between(A, d)` the target in which `A` also
    /// splits dim `d`,
    ///
    /// ```text
    /// from --exchange--> between(A, d) --all_gather over A--> to
    /// ```
    ///
    /// Each element then leaves the sources once per remaining replica, and a receiver gets `1 / |A|` of its
    /// shard from outside. The network decides what `A` may be: the parts of the replicated axes at any
    /// levels. Of the dims, only those count that are split the most evenly.
    ///
    /// ```text
    /// target    [x 3] over the slow level, replicated over y = 8 inside a domain
    /// between   [x 3][y 8]: each rank of a domain gets one part in 8 of the data the domain needs, from any owner
    /// then      all ranks of the domain gather their parts
    /// ```
    pub(super) fn relays(&mut self, from: &Sharding, direct: &Proposed) -> Result<Vec<Legs>, Error> {
        let (q, to) = (self.q, self.q.to);
        let mut paths = Vec::new();
        let one_mesh = from.mesh() == to.mesh();
        if q.is_relayed || !direct.communicates() || to.is_partial() || one_mesh && q.network.levels() == 1 {
            return Ok(paths);
        }
        let network = Network::new(q.network.model, to.mesh());
        let parts = network.by_level(&to.replicated_axes());
        let mut levels: SmallVec<[usize; 4]> = parts.iter().map(|part| part.0).collect();
        levels.sort_unstable();
        levels.dedup();
        for chosen in 1..1usize << levels.len() {
            let is_chosen =
                |level: usize| levels.iter().position(|&l| l == level).is_some_and(|i| chosen >> i & 1 == 1);
            let modes = parts.iter().filter(|part| is_chosen(part.0)).map(|part| part.1);
            let shared = to.mesh().sub_axes_of(modes);
            let mut between: SmallVec<[Sharding; 4]> = SmallVec::new();
            for dim in 0..to.shape().len() {
                // Parts of axes may have no layout.
                between.extend(pieces(to, &shared, dim).unwrap_or_default());
            }
            let least = between.iter().map(Sharding::max_local_numel).min();
            for parts in between.into_iter().filter(|s| Some(s.max_local_numel()) == least && s != from) {
                if !self.goes_on() {
                    return Ok(paths);
                }
                if let Some(first) = self.straight(from, &parts).or_else(no_group)? {
                    paths.push(vec![first, Leg::Share { to: to.clone() }]);
                }
            }
        }
        Ok(paths)
    }

    /// Returns the path between two meshes that gathers inside the domains of the sources first.
    ///
    /// For a small tensor, messages over the slow level take longer than a gather of it on the fast ones.
    pub(super) fn gathered(&mut self, from: &Sharding, direct: &Proposed) -> Result<Option<Legs>, Error> {
        let (q, mesh) = (self.q, from.mesh());
        let top = q.network.levels() - 1;
        let is_inner = |axis: usize| q.network.level(mesh.known_mode(mesh.known_whole(axis))).0 < top;
        if mesh == q.to.mesh()
            || top == 0
            || !direct.communicates()
            || !from.cutting().any(|s| is_inner(s.axis))
        {
            return Ok(None);
        }
        let whole = if let Some(modes) = from.modes() {
            from.with_modes(modes.iter().map(|&m| match mesh.sub_axis(m) {
                Some(s) if is_inner(s.axis) => m.map(|_| AxisStride::local(1)),
                Some(_) | None => m,
            }))
        } else {
            let Some(mut cuts) = cuts_of(from) else { return Ok(None) };
            cuts.retain(|x| !is_inner(x.sub.axis));
            Sharding::from_cuts(mesh, from.shape(), cuts, from.partial().iter().copied().collect())?
        };
        let last = self.straight(&whole, q.to)?;
        Ok(last.map(|last| vec![Leg::Share { to: whole }, last]))
    }
}
