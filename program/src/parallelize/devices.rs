//! The mesh of a number of devices: two axes, of which one is a part of the innermost domain of the network.
//!
//! Types are open along both axes, so a mesh has data, tensor and sequence parallelism over each, and over both. A mesh
//! whose bound is above the time of a program for another is not searched further: first by the bound without a price of
//! memory, then at the best prices of the mesh before.

use reshard_planner::Topology;
use reshard_sharding::Mesh;

use crate::graph::Graph;
use crate::parallelize::{AtPrice, Parallelized, Prices, Search};
use crate::{Error, Parallelizer};

/// A mesh that was compared with others.
#[derive(Clone, Debug, PartialEq)]
pub struct MeshBound {
    /// The mesh.
    pub mesh: Mesh,
    /// The least time of any assignment on it within the limit, in microseconds.
    pub bound_us: f64,
    /// The time of the best program on it; `None` if its bound ruled it out, or if no program was found that fits.
    pub time_us: Option<f64>,
}

impl Parallelizer {
    /// Chooses the mesh of this many devices too; `on` returns the graph on a mesh.
    ///
    /// ```
    /// use reshard_program::{Graph, Parallelizer};
    /// let text = "
    ///     mesh devices=8
    ///     x: f32[512,512] ?
    ///     w: f32[512,512] ?
    ///     h = mm(x, w)
    ///     loss = sum(h)
    ///     gradient loss wrt w";
    /// let table = std::sync::Arc::default();
    /// let found = Parallelizer::new()
    ///     .parallelize_devices(8, |mesh| Graph::parse_on(std::sync::Arc::clone(&table), text, mesh))?;
    /// assert_eq!(found.meshes.len(), 1);
    /// # Ok::<(), reshard_program::Error>(())
    /// ```
    ///
    /// Fails as [`parallelize`](Parallelizer::parallelize) does, and if `on` fails.
    pub fn parallelize_devices(
        &self,
        devices: usize,
        on: impl Fn(&Mesh) -> Result<Graph, Error>,
    ) -> Result<Parallelized, Error> {
        let levels = self.solver.planner.options().topology().map_or(&[][..], Topology::levels);
        let meshes = meshes(devices, levels.first().and_then(|level| level.ranks))?;
        let graphs = meshes.iter().map(on).collect::<Result<Vec<Graph>, Error>>()?;
        let mut searches: Vec<(usize, Search<'_>, AtPrice)> = Vec::with_capacity(graphs.len());
        for (n, graph) in graphs.iter().enumerate() {
            let mut search = Search::of(self, graph)?;
            let free = search.at(Prices::default())?;
            searches.push((n, search, free));
        }
        searches.sort_by_key(|(_, _, free)| free.bound);
        let mut best: Option<Parallelized> = None;
        let mut refused: Option<Error> = None;
        let mut compared: Vec<(usize, MeshBound)> = Vec::with_capacity(graphs.len());
        let mut prices = Prices::default();
        for (n, mut search, free) in searches {
            let mut bound = i128::from(free.bound);
            let is_above = |bound: i128| best.as_ref().is_some_and(|best| bound as f64 >= best.time_us * 1e6);
            if !is_above(bound) && prices != Prices::default() {
                let at = search.at(prices)?;
                bound = bound.max(search.within(&at));
            }
            let mut time_us = None;
            if !is_above(bound) {
                search.completes(&free)?;
                bound = search.bound.max(bound);
                prices = search.prices;
                match search.answer() {
                    Ok(found) => {
                        time_us = Some(found.time_us);
                        if best.as_ref().is_none_or(|best| found.time_us < best.time_us) {
                            best = Some(found);
                        }
                    }
                    Err(error) => refused = Some(error),
                }
            }
            let bound_us = bound.max(0) as f64 / 1e6;
            compared.push((n, MeshBound { mesh: meshes[n].clone(), bound_us, time_us }));
        }
        compared.sort_by_key(|(n, _)| *n);
        let meshes: Vec<MeshBound> = compared.into_iter().map(|(_, mesh)| mesh).collect();
        let bound_us = meshes.iter().map(|mesh| mesh.bound_us).fold(f64::INFINITY, f64::min);
        match (best, refused) {
            (Some(best), _) => Ok(Parallelized { bound_us: bound_us.min(best.time_us), meshes, ..best }),
            (None, Some(error)) => Err(error),
            (None, None) => Err(Error::Graph { reason: format!("{devices} devices have no mesh") }),
        }
    }
}

/// Returns the meshes of this many devices: each part of a domain of the network inside, and the rest outside.
///
/// On a network with one domain the outer axis is not the smaller one: others differ by names only.
fn meshes(devices: usize, domain: Option<usize>) -> Result<Vec<Mesh>, Error> {
    let is_part = |part: &usize| match domain {
        Some(domain) => domain.is_multiple_of(*part),
        None => *part <= devices / *part,
    };
    let most = domain.unwrap_or(MOST_INSIDE).min(devices.saturating_sub(1));
    let parts = (2..=most).filter(|part| devices.is_multiple_of(*part) && is_part(part));
    let mut meshes: Vec<_> = parts.map(|part| Mesh::new([("a", devices / part), ("b", part)])).collect();
    if meshes.is_empty() {
        meshes.push(Mesh::new([("a", devices)]));
    }
    let meshes: Result<Vec<Mesh>, _> = meshes.into_iter().collect();
    meshes.map_err(|e| Error::of(&format!("{devices} devices"), e))
}

/// The largest inner axis on a network with one domain.
const MOST_INSIDE: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_is_a_part_of_a_domain() {
        let of = |devices, domain| {
            let found = meshes(devices, domain).expect("there are some");
            found.iter().map(Mesh::to_string).collect::<Vec<_>>()
        };
        assert_eq!(of(64, Some(8)), ["a=32,b=2", "a=16,b=4", "a=8,b=8"]);
        assert_eq!(of(8, Some(8)), ["a=4,b=2", "a=2,b=4"]);
        assert_eq!(of(12, Some(8)), ["a=6,b=2", "a=3,b=4"]);
        assert_eq!(of(7, Some(8)), ["a=7"]);
        assert_eq!(of(1, Some(8)), ["a=1"]);
        assert_eq!(of(64, None), ["a=32,b=2", "a=16,b=4", "a=8,b=8"]);
        assert!(meshes(0, Some(8)).is_err());
    }
}
