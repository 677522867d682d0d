//! Draws rules.

use reshard_test_support::Random;

/// Draws rules for some sources, with the shapes that their expressions have.
pub(crate) struct Draw<'a> {
    pub(crate) random: &'a mut Random,
    pub(crate) names: Vec<(String, Vec<usize>)>,
}

impl Draw<'_> {
    /// Returns an expression and its shape; most are valid.
    pub(crate) fn expr(&mut self, depth: usize) -> (String, Vec<usize>) {
        if depth == 0 {
            return self.random.pick(&self.names).clone();
        }
        match self.random.below(8) {
            0 => {
                let (text, shape) = self.expr(depth - 1);
                self.slice(&text, shape)
            }
            1 => {
                let (text, mut shape) = self.expr(depth - 1);
                let Some(dim) = self.dim(&shape) else { return (text, shape) };
                shape[dim] += self.random.below(4);
                (format!("pad({text}, {} on {dim})", shape[dim]), shape)
            }
            2..=4 => {
                let (text, shape) = self.expr(depth - 1);
                self.rearrange(&text, &shape, true)
            }
            5 => {
                let (text, shape) = self.expr(depth - 1);
                (format!("cast({text}, f32)"), shape)
            }
            _ => self.cat(depth - 1),
        }
    }

    fn dim(&mut self, shape: &[usize]) -> Option<usize> {
        (!shape.is_empty()).then(|| self.random.below(shape.len()))
    }

    fn slice(&mut self, text: &str, mut shape: Vec<usize>) -> (String, Vec<usize>) {
        let mut ranges = Vec::new();
        for extent in &mut shape {
            let start = self.random.below(*extent + 1);
            let stop = start + self.random.below(*extent - start + 1);
            match self.random.below(4) {
                0 => ranges.push(":".to_owned()),
                1 => {
                    ranges.push(format!("{start}:"));
                    *extent -= start;
                }
                _ => {
                    ranges.push(format!("{start}:{stop}"));
                    *extent = stop - start;
                }
            }
        }
        if ranges.is_empty() {
            (text.to_owned(), shape)
        } else {
            (format!("{text}[{}]", ranges.join(", ")), shape)
        }
    }

    /// Splits dims at divisors, shuffles the axes, and merges neighbours; may repeat and drop copies.
    fn rearrange(&mut self, text: &str, shape: &[usize], repeats: bool) -> (String, Vec<usize>) {
        let (mut left, mut axes, mut sizes) = (Vec::new(), Vec::new(), String::new());
        for extent in shape {
            let mut group = Vec::new();
            let mut rest = *extent;
            for _ in 0..self.random.below(3) {
                let divisors: Vec<usize> = (1..=rest.max(1)).filter(|n| rest.is_multiple_of(*n)).collect();
                let size = *self.random.pick(&divisors);
                rest /= size;
                group.push((format!("a{}", axes.len()), size));
                axes.push(group[group.len() - 1].clone());
            }
            group.push((format!("a{}", axes.len()), rest));
            axes.push(group[group.len() - 1].clone());
            for (axis, size) in &group[..group.len() - 1] {
                sizes.extend([", ", &axis[..], "=", &size.to_string()]);
            }
            left.push(format!("({})", group.iter().map(|(axis, _)| &axis[..]).collect::<Vec<_>>().join(" ")));
        }
        if repeats && self.random.below(4) == 0 {
            axes.push(("r".to_owned(), 1 + self.random.below(3)));
            sizes.extend([", r=", &axes[axes.len() - 1].1.to_string()]);
        }
        // Copies: mostly of an axis of extent 1; of others the check fails.
        if self.random.below(3) == 0
            && let Some(k) = axes.iter().position(|(axis, size)| *size == 1 && axis != "r")
        {
            axes.remove(k);
        } else if self.random.below(20) == 0 && axes.len() > 1 {
            axes.remove(0);
        }
        for k in (1..axes.len()).rev() {
            axes.swap(k, self.random.below(k + 1));
        }
        let (mut right, mut made) = (Vec::<Vec<String>>::new(), Vec::new());
        for (axis, size) in axes {
            match (right.last_mut(), made.last_mut()) {
                (Some(group), Some(extent)) if self.random.below(2) == 0 => {
                    group.push(axis);
                    *extent *= size;
                }
                _ => {
                    right.push(vec![axis]);
                    made.push(size);
                }
            }
        }
        let right: Vec<String> = right.into_iter().map(|group| format!("({})", group.join(" "))).collect();
        (format!("rearrange({text}, '{} -> {}'{sizes})", left.join(" "), right.join(" ")), made)
    }

    fn cat(&mut self, depth: usize) -> (String, Vec<usize>) {
        let (first, mut shape) = self.expr(depth);
        let Some(dim) = self.dim(&shape) else { return (first, shape) };
        let extent = shape[dim];
        let (mut parts, mut total, mut all) = (vec![first.clone()], extent, vec![extent]);
        for _ in 0..=self.random.below(2) {
            let start = self.random.below(extent + 1);
            let before = vec![":"; dim].join(", ");
            let comma = if dim > 0 { ", " } else { "" };
            parts.push(format!("{first}[{before}{comma}{start}:]"));
            total += extent - start;
            all.push(extent - start);
        }
        shape[dim] = total;
        let blocks = (2..5).find(|n| all.iter().all(|extent| extent.is_multiple_of(*n))).unwrap_or(1);
        let by = if blocks > 1 { format!(" by {blocks}") } else { String::new() };
        if self.random.below(3) == 0 && all.iter().all(|n| *n > 0) {
            // Shares in the ratio of the extents.
            parts = parts.iter().zip(&all).map(|(part, n)| format!("{n} {part}")).collect();
        }
        (format!("cat({} on {dim}{by})", parts.join(" + ")), shape)
    }

    /// Returns a left side for a tensor of this shape.
    pub(crate) fn left(&mut self, name: &str, shape: &[usize], depth: usize) -> (String, String) {
        let Some(dim) = self.dim(shape).filter(|_| depth > 0) else {
            return (name.to_owned(), String::new());
        };
        match self.random.below(4) {
            0 if shape[dim] < 8 => (format!("stack({name}.# on {dim})"), String::new()),
            1 => {
                // The pattern read backwards makes the given shape: it is drawn from it.
                let (text, made) = self.rearrange("?", shape, false);
                let (pattern, sizes) = text["rearrange(?, '".len()..text.len() - 1].split_once('\'').unwrap();
                let (a, b) = pattern.split_once(" -> ").unwrap();
                let (inner, _) = self.left(name, &made, 0);
                (format!("rearrange({inner}, '{b} -> {a}'{sizes})"), String::new())
            }
            2 => {
                let shares: Vec<usize> = (0..2).map(|_| 1 + self.random.below(3)).collect();
                let sum: usize = shares.iter().sum();
                let blocks = (1..4).rev().find(|n| shape[dim].is_multiple_of(n * sum));
                if blocks.is_none() && self.random.below(4) > 0 {
                    return (name.to_owned(), String::new());
                }
                let blocks = blocks.unwrap_or(1);
                (format!("{} {name}.a + {} {name}.b", shares[0], shares[1]), format!(" on {dim} by {blocks}"))
            }
            _ => (name.to_owned(), String::new()),
        }
    }
}
