//! Requests to shardings and meshes: notations, layouts, regions, groups, views.

use std::fmt::Write as _;

use reshard_sharding::{Error, Mesh, Region, Sharding};
use reshard_verify::Random;

use crate::answers::{chance, mesh, names, placements, shape, shown, some_sub_axes};

/// Returns the answer to request number `q`.
pub(crate) fn answer(q: u64) -> String {
    let mut r = Random::new(q.wrapping_add(1 << 50));
    let mut text = format!("{q}");
    if let Err(e) = asked(&mut r, &mut text) {
        let _ = write!(text, " | {}", e.code());
    }
    text
}

fn asked(r: &mut Random, text: &mut String) -> Result<(), Error> {
    let m: Mesh = mesh(r).parse()?;
    let subs = some_sub_axes(r, &m);
    let _ = write!(
        text,
        " {m} {}: {} {}",
        names(&m, &subs),
        shown(m.group(&subs)),
        m.groups(&subs).map_or_else(
            |e| e.code().to_owned(),
            |g| format!("{} {} {} {}", g.pattern(), g.firsts(), g.lowest(), g.count())
        )
    );
    let whole = shape(r);
    let terms = chance(r, 30);
    let given = placements(r, &m, &whole, terms);
    let _ = write!(text, " {whole:?} {given}");
    let s = Sharding::parse(&m, &whole, &given)?;
    write_sharding(text, &s);
    let rank = m.coordinate_at(r.below(m.size())).expect("inside the mesh");
    let rank = m.rank_at(&rank).expect("inside the mesh");
    let _ = write!(text, " | {rank}: {:?} {}", s.local_shape(rank)?.as_slice(), region(&s.region(rank)?));
    if let Ok(placements) = s.placements()
        && let Ok(x) = Sharding::strided_readings(&m, &whole, &placements)
    {
        let _ = write!(text, " | {} or {} {}", x.literal, x.ordered, x.agree);
    }
    let view = another_shape(r, &whole);
    let _ = write!(text, " | view {view:?}: {}", shown(s.view(&view)));
    if let Ok(v) = s.view(&view) {
        write_sharding(text, &v);
    }
    let dims = whole.len();
    if dims > 0 {
        let (dim, order) = (r.below(dims), r.permutation(dims));
        let start = r.below(whole[dim] + 1);
        let len = r.below(whole[dim] + 1 - start);
        let _ = write!(text, " | permute {order:?}: {}", shown(s.permute(&order)));
        let _ = write!(text, " | narrow {dim} {start} {len}: {}", shown(s.narrow(dim, start..start + len)));
        let _ = write!(text, " | flatten: {}", shown(s.flatten(0..dim + 1)));
        let _ = write!(text, " | expand: {}", shown(s.unsqueeze(dim).and_then(|s| s.expand(dim, 6))));
        let _ = write!(text, " | squeeze: {}", shown(s.unsqueeze(dim).and_then(|s| s.squeeze(dim))));
    }
    Ok(())
}

fn write_sharding(text: &mut String, s: &Sharding) {
    let axes: Vec<String> =
        (0..s.mesh().axes().len()).map(|a| format!("{:?}", s.strided(a))).collect::<Vec<_>>();
    let _ = write!(
        text,
        " = {s} | {} | {} | {} | {} | {} | {} | {} | {} | {:?} | {}",
        shown(s.placements()),
        shown(s.to_dims_notation()),
        shown(s.to_hlo()),
        shown(s.to_partition_spec()),
        shown(s.to_pytorch()),
        shown(s.to_shardy()),
        s.ownership().map_or_else(|| "no layout".to_owned(), |l| l.to_string()),
        s.max_local_numel(),
        s.reduction(),
        names(s.mesh(), &s.replicated_axes())
    );
    let _ = write!(text, " {}", axes.join(" "));
}

fn region(region: &Region) -> String {
    let list = |dim: &reshard_sharding::Intervals| {
        dim.iter().map(|x| format!("{}+{}", x.start, x.len)).collect::<Vec<_>>().join(",")
    };
    region.dims.iter().map(list).collect::<Vec<_>>().join(" x ")
}

/// Returns a shape with the same number of elements, in most cases.
fn another_shape(r: &mut Random, whole: &[usize]) -> Vec<usize> {
    let mut left: usize = whole.iter().product();
    let mut out = Vec::new();
    while left > 1 && out.len() < 3 {
        let divisors: Vec<usize> = (1..=left.min(200)).filter(|k| left.is_multiple_of(*k)).collect();
        let k = divisors[r.below(divisors.len())];
        out.push(k);
        left /= k;
    }
    if left != 1 || chance(r, 20) {
        out.insert(r.below(out.len() + 1), left);
    }
    out
}
