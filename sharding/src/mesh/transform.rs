//! Meshes from meshes: slices, other orders, flattened and split axes, concatenations and other views.
//!
//! A mesh is a list of layouts and an offset, so each of these is a line of layout algebra and none
//! enumerates ranks (where the ranks are a table, it is read at the end):
//!
//! ```text
//! slice, at           some of the layouts; the offset moves by layout_a(c_a) for every axis fixed at c_a
//! reorder, rename     the same layouts in another order, or under other names
//! flatten(a, b)       coalesce((layout_b, layout_a))              the order given counts, last fastest
//! split(a, n.. m)     layout_a o (size_k : product of the later sizes)
//! concatenate         the layouts of several meshes that start at one rank
//! reinterpret         flatten everything, then split
//! ```

use reshard_layout::Layout;
use smallvec::SmallVec;

use super::Mesh;
use crate::axis::AxisName;
use crate::{Error, SubAxis};

type NamedLayouts = SmallVec<[(AxisName, Layout); 4]>;

impl Mesh {
    /// Returns the part of the mesh along these axes, in the order given, through coordinate 0 of the others.
    ///
    /// ```
    /// use reshard_sharding::Mesh;
    /// let mesh: Mesh = "dp=2,pp=2,tp=4".parse()?;
    /// let part = mesh.slice(&["dp", "tp"])?;
    /// assert_eq!(part.to_string(), "dp=2:8,tp=4:1");
    /// # Ok::<(), reshard_sharding::Error>(())
    /// ```
    ///
    /// Fails with `no_such_axis`, and with `mesh` if an axis is named twice.
    pub fn slice(&self, names: &[&str]) -> Result<Mesh, Error> {
        let axes = names.iter().map(|n| self.named(n)).collect::<Result<NamedLayouts, Error>>()?;
        self.through_table(axes, self.0.offset)
    }

    /// Returns the part of the mesh at fixed coordinates of some axes, along the others in mesh order.
    ///
    /// ```
    /// use reshard_sharding::Mesh;
    /// let mesh: Mesh = "dp=2,pp=2,tp=4".parse()?;
    /// assert_eq!(mesh.at(&[("pp", 1)])?.to_string(), "dp=2:8,tp=4:1@4");
    /// # Ok::<(), reshard_sharding::Error>(())
    /// ```
    ///
    /// Fails with `no_such_axis`, and with `mesh` for a coordinate outside its axis or an axis fixed twice.
    pub fn at(&self, fixed: &[(&str, usize)]) -> Result<Mesh, Error> {
        let mut offset = self.0.offset as i64;
        let mut gone: SmallVec<[usize; 4]> = SmallVec::new();
        for &(name, c) in fixed {
            let axis = self.axis(name)?;
            let a = &self.axes()[axis];
            if c >= a.size() {
                return Err(Error::Mesh {
                    reason: format!("{name}={} has no coordinate {c}: coordinates start at 0", a.size()),
                });
            }
            if gone.contains(&axis) {
                return Err(Error::Mesh { reason: format!("axis {name} is fixed twice; fix each once") });
            }
            gone.push(axis);
            // Inside the mesh, every sum of axis offsets is a rank.
            offset += a.layout().at(c as i64)?;
        }
        let left = self.axes().iter().enumerate().filter(|(i, _)| !gone.contains(i));
        let axes = left.map(|(_, a)| (a.name().clone(), a.layout().clone())).collect::<NamedLayouts>();
        self.through_table(axes, usize::try_from(offset).map_err(|_| Error::overflow("the first rank"))?)
    }

    /// Returns the part of the mesh along these axes that holds `rank`.
    ///
    /// ```
    /// use reshard_sharding::Mesh;
    /// let mesh: Mesh = "dp=2,pp=2,tp=4".parse()?;
    /// assert_eq!(mesh.slice_of(6, &["tp"])?.to_string(), "tp=4@4");
    /// # Ok::<(), reshard_sharding::Error>(())
    /// ```
    ///
    /// Fails with `no_such_rank` or `no_such_axis`.
    #[doc(hidden)]
    pub fn slice_of(&self, rank: usize, names: &[&str]) -> Result<Mesh, Error> {
        let c = self.coordinate(rank).ok_or_else(|| Error::NoSuchRank { rank, mesh: self.to_string() })?;
        let fixed: SmallVec<[(&str, usize); 4]> = self
            .axes()
            .iter()
            .zip(&c)
            .map(|(a, &c)| (a.name().as_str(), c))
            .filter(|(name, _)| !names.contains(name))
            .collect();
        self.at(&fixed)?.slice(names)
    }

    /// Returns the same mesh with its axes in this order; the ranks at the axes' coordinates stay.
    ///
    /// ```
    /// use reshard_sharding::Mesh;
    /// let mesh: Mesh = "dp=2,tp=4".parse()?;
    /// let other = mesh.reorder(&["tp", "dp"])?;
    /// assert_eq!(other.to_string(), "tp=4:1,dp=2:4");
    /// assert_eq!(other.rank_at(&[3, 1]), mesh.rank_at(&[1, 3]));
    /// # Ok::<(), reshard_sharding::Error>(())
    /// ```
    ///
    /// Fails with `mesh` unless every axis is named once.
    pub fn reorder(&self, names: &[&str]) -> Result<Mesh, Error> {
        if names.len() != self.axes().len() {
            return Err(Error::Mesh {
                reason: format!(
                    "a new order of {self} must have each of its axes once, not {}",
                    names.join(",")
                ),
            });
        }
        self.slice(names)
    }

    /// Returns the same mesh with another name for one axis.
    ///
    /// Fails with `no_such_axis`, and with `mesh` for a name that is taken or is not one.
    pub fn rename(&self, from: &str, to: &str) -> Result<Mesh, Error> {
        let axis = self.axis(from)?;
        let to = AxisName::new(to)?;
        let name = |(i, a): (usize, &crate::Axis)| {
            (if i == axis { to.clone() } else { a.name().clone() }, a.layout().clone())
        };
        self.through_table(self.axes().iter().enumerate().map(name), self.0.offset)
    }

    /// Returns the mesh with these axes as one, at the position of the outermost of them.
    ///
    /// The coordinate of the new axis counts the old ones with the last named fastest, so the order counts:
    /// flatten(dp, cp) is not flatten(cp, dp), although both are the same group.
    ///
    /// ```
    /// use reshard_sharding::Mesh;
    /// let mesh: Mesh = "dp=2,cp=2,tp=4".parse()?;
    /// assert_eq!(mesh.flatten(&["dp", "cp"], "dp_cp")?.to_string(), "dp_cp=4,tp=4");
    /// assert_eq!(mesh.flatten(&["cp", "dp"], "cp_dp")?.to_string(), "cp_dp=(2,2):(8,4),tp=4:1");
    /// assert_eq!(mesh.flatten(&["dp", "tp"], "dp_tp")?.to_string(), "dp_tp=(4,2):(1,8),cp=2:4");
    /// # Ok::<(), reshard_sharding::Error>(())
    /// ```
    ///
    /// Fails with `no_such_axis`, and with `mesh` for an axis named twice, none at all, or a name that is
    /// taken.
    pub fn flatten(&self, names: &[&str], into: &str) -> Result<Mesh, Error> {
        let named = names.iter().map(|n| self.named(n)).collect::<Result<NamedLayouts, Error>>()?;
        let flat = Mesh::with_layouts(named, self.0.offset)?;
        let at = names.iter().map(|n| self.axis(n)).collect::<Result<SmallVec<[usize; 4]>, _>>()?;
        let Some(&outermost) = at.iter().min() else {
            return Err(Error::Mesh { reason: format!("{into} flattens no axes: name at least one") });
        };
        let layout = flat.flat_positions()?;
        let into = AxisName::new(into)?;
        let mut axes = NamedLayouts::new();
        for (i, a) in self.axes().iter().enumerate() {
            if i == outermost {
                axes.push((into.clone(), layout.clone()));
            }
            if !at.contains(&i) {
                axes.push((a.name().clone(), a.layout().clone()));
            }
        }
        self.through_table(axes, self.0.offset)
    }

    /// Returns the layout from the position in [`Mesh::ranks`] to rank offset: the reversed axes, coalesced.
    ///
    /// ```
    /// use reshard_sharding::Mesh;
    /// let mesh: Mesh = "dp=2:8,cp=2:4,tp=4:1".parse()?;
    /// assert_eq!(mesh.flat_layout()?.to_string(), "16:1");
    /// # Ok::<(), reshard_sharding::Error>(())
    /// ```
    ///
    /// Fails with `not_a_layout` where the ranks are none.
    #[doc(hidden)]
    pub fn flat_layout(&self) -> Result<Layout, Error> {
        match self.rank_table() {
            None => self.flat_positions(),
            Some(_) => Err(Error::NotALayout {
                reason: format!(
                    "the order of the ranks of {self} is not a layout; query each rank separately"
                ),
            }),
        }
    }

    /// Returns the same where the layouts lead to positions in a table.
    fn flat_positions(&self) -> Result<Layout, Error> {
        let modes: SmallVec<[Layout; 4]> = self.axes().iter().rev().map(|a| a.layout().clone()).collect();
        if modes.is_empty() {
            return Ok(Layout::unit());
        }
        Ok(Layout::concat(&modes)?.coalesce())
    }

    /// Returns the mesh with one axis split into several, in its position, last fastest.
    ///
    /// ```
    /// use reshard_sharding::Mesh;
    /// let mesh: Mesh = "dp=8,tp=4".parse()?;
    /// assert_eq!(mesh.split("dp", &[("replicate", 2), ("shard", 4)])?.to_string(), "replicate=2,shard=4,tp=4");
    /// # Ok::<(), reshard_sharding::Error>(())
    /// ```
    ///
    /// Requires that the sizes multiply to the axis; fails with `mesh`, or with the error of the layout
    /// algebra if a hierarchical axis cannot be split there.
    pub fn split(&self, name: &str, into: &[(&str, usize)]) -> Result<Mesh, Error> {
        let axis = self.axis(name)?;
        let parts = self.axes()[axis].layout().clone();
        let parts = split_layout(&parts, into, &format!("the axis {name} of {self}"))?;
        let mut axes = NamedLayouts::new();
        for (i, a) in self.axes().iter().enumerate() {
            if i == axis {
                axes.extend(parts.iter().cloned());
            } else {
                axes.push((a.name().clone(), a.layout().clone()));
            }
        }
        self.through_table(axes, self.0.offset)
    }

    /// Returns another view of the same ranks: the list in mesh order, split into other axes, last fastest.
    ///
    /// ```
    /// use reshard_sharding::Mesh;
    /// let dense: Mesh = "dp=2,cp=2,tp=4".parse()?;
    /// let sparse = dense.reinterpret(&[("edp", 4), ("ep", 2), ("etp", 2)])?;
    /// assert_eq!(sparse.to_string(), "edp=4,ep=2,etp=2");
    /// assert!(sparse.same_ranks(&dense));
    /// # Ok::<(), reshard_sharding::Error>(())
    /// ```
    ///
    /// Requires that the sizes multiply to the number of ranks; fails with `mesh`, or with the error of the
    /// layout algebra if the ranks in that order are not a layout.
    #[doc(hidden)]
    pub fn reinterpret(&self, axes: &[(&str, usize)]) -> Result<Mesh, Error> {
        let parts = split_layout(&self.flat_positions()?, axes, &format!("the mesh {self}"))?;
        self.through_table(parts, self.0.offset)
    }

    /// Returns the mesh of the axes of several meshes that start at the same rank.
    ///
    /// ```
    /// use reshard_sharding::Mesh;
    /// let world: Mesh = "dp=2,pp=2,tp=4".parse()?;
    /// let (dp, tp) = (world.slice(&["dp"])?, world.slice(&["tp"])?);
    /// assert_eq!(Mesh::concatenate(&[dp, tp])?, world.slice(&["dp", "tp"])?);
    /// # Ok::<(), reshard_sharding::Error>(())
    /// ```
    ///
    /// Fails with `mesh` if the meshes start at different ranks, share a name, or are not orthogonal.
    ///
    /// For a mesh whose ranks are not a layout, the axes do not determine the ranks between them:
    /// `not_a_layout`, unless all other meshes have one rank.
    pub fn concatenate(meshes: &[Mesh]) -> Result<Mesh, Error> {
        let offset = meshes.first().map_or(0, Mesh::offset);
        if let Some(other) = meshes.iter().find(|m| m.offset() != offset) {
            return Err(Error::Mesh {
                reason: format!(
                    "{} starts at rank {offset} and {other} at rank {}: slice both at the same coordinate",
                    meshes[0],
                    other.offset()
                ),
            });
        }
        let axes = meshes.iter().flat_map(Mesh::axes).map(|a| (a.name().clone(), a.layout().clone()));
        let Some(listed) = meshes.iter().find(|m| m.rank_table().is_some()) else {
            return Mesh::with_layouts(axes, offset);
        };
        if meshes.iter().any(|m| m != listed && m.size() > 1)
            || meshes.iter().filter(|m| *m == listed).count() > 1
        {
            return Err(Error::NotALayout {
                reason: format!(
                    "the ranks of {listed} are not a layout, so they do not determine those of a larger mesh; slice \
                     the mesh of all axes"
                ),
            });
        }
        listed.through_table(axes, listed.0.offset)
    }

    /// Returns `true` if two meshes hold the same ranks, in whatever order and under whatever names.
    #[doc(hidden)]
    pub fn same_ranks(&self, other: &Mesh) -> bool {
        if self.0.table.is_some() || other.0.table.is_some() {
            let ascending = |m: &Mesh| {
                let mut ranks: Vec<usize> = m.ranks().collect();
                ranks.sort_unstable();
                ranks
            };
            // Compare sizes first, so that no long list is built for nothing.
            return self.size() == other.size() && ascending(self) == ascending(other);
        }
        self.min_rank() == other.min_rank()
            && match (self.group_of_all(), other.group_of_all()) {
                (Ok(a), Ok(b)) => a == b,
                (Ok(_) | Err(_), _) => false,
            }
    }

    /// Returns the group of all ranks of the mesh.
    #[doc(hidden)]
    pub fn group_of_all(&self) -> Result<crate::GroupPattern, Error> {
        let all: SmallVec<[SubAxis; 4]> = self.whole_axes().collect();
        self.group(&all)
    }

    fn named(&self, name: &str) -> Result<(AxisName, Layout), Error> {
        let a = &self.axes()[self.axis(name)?];
        Ok((a.name().clone(), a.layout().clone()))
    }
}

/// Returns the layouts of the digits of a coordinate: `layout o (size_k : product of the later sizes)`.
fn split_layout(layout: &Layout, into: &[(&str, usize)], whole: &str) -> Result<NamedLayouts, Error> {
    let product = into.iter().try_fold(1usize, |p, &(_, n)| p.checked_mul(n));
    if product != Some(layout.size() as usize) {
        let parts: Vec<String> = into.iter().map(|(name, n)| format!("{name}={n}")).collect();
        return Err(Error::Mesh {
            reason: format!(
                "{} does not split {whole}, which has {} coordinates; the sizes must multiply to that",
                parts.join(","),
                layout.size()
            ),
        });
    }
    let mut post = 1usize;
    let mut parts = NamedLayouts::new();
    for &(name, n) in into.iter().rev() {
        // Sizes that multiply to an extent are at least 1 and at most that extent.
        let digit = Layout::from_modes(&[(n as i64, if n == 1 { 0 } else { post as i64 })])?;
        parts.push((AxisName::new(name)?, layout.compose(&digit)?));
        post *= n;
    }
    parts.reverse();
    Ok(parts)
}
