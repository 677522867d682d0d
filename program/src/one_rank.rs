//! Types along axes of one rank.
//!
//! So that a program that is wrong for 64 ranks is rejected for 1, a graph stores with each type its
//! **letters**: the type along the axes of one rank, on a mesh of these axes alone with two ranks each. They are
//! those of the given [`ShardingType`].
//!
//! ```text
//! mesh dp=1,tp=4         S(0),S(1)        letters, on dp=2: S(0)
//! ```
//!
//! Rows of ops hold along each axis by itself. So a program is typed correctly if it is so on its mesh, where
//! axes of one rank restrict nothing, and if its letters are on theirs. The solver checks both if implicit
//! redistributions are restricted, and the letters of the second program are those of the first one's values.
//! Shardings, plans and costs are those of the mesh: communication along an axis of one rank is free.
//!
//! Types have letters if they are made from texts or placements. Programs with several meshes, with `local` over
//! an axis of one rank (its shapes have the size of the axis), or with a type of shardings have none and are not
//! checked along these axes; nor are types such as `RG(0,[8])` that are valid for one size only. If such a
//! program is a text, the solver also solves the same text with two ranks on each axis.

use std::sync::Arc;

use reshard_sharding::internal::OneRank;
use reshard_sharding::{Mesh, Sharding, ShardingType};

use crate::graph::{Given, Graph, GraphStatement, Known, ValueId};
use crate::local_type::Partly;
use crate::meshes::Meshes;
use crate::program::{Program, Value};
use crate::{Error, ShardingSolver};

/// The graphs of a text on its mesh, and with two ranks along each axis of one rank.
#[derive(Clone)]
pub(crate) struct WideText {
    parsed: Graph,
    wide: Graph,
}

impl WideText {
    /// Reads a text again with more ranks, unless its types have letters.
    ///
    /// Returns `None` for types and shapes that are valid for one size only.
    pub(crate) fn of(
        parsed: &Graph,
        read: impl FnOnce(&[(&str, usize)]) -> Option<Graph>,
        sizes: &[(&str, usize)],
    ) -> Option<Arc<WideText>> {
        let one_rank = OneRank::of(parsed.mesh()).filter(|_| !parsed.has_letters())?;
        let alone = one_rank.alone().axes().iter().map(|axis| (axis.name().as_str(), axis.size()));
        let kept = sizes.iter().copied().filter(|(name, _)| one_rank.alone().axis(name).is_err());
        let wide = read(&kept.chain(alone).collect::<Vec<_>>())?;
        Some(Arc::new(WideText { parsed: parsed.clone(), wide }))
    }
}

impl Meshes {
    /// Formats a type with its mesh, and with these letters along axes of one rank.
    pub(crate) fn type_text_with(&self, is: &ShardingType, letters: Option<&ShardingType>) -> String {
        self.merged(is, letters).unwrap_or_else(|| self.type_text(is))
    }

    /// Formats the sharding of a value, likewise.
    pub(crate) fn value_text_with(&self, value: &Sharding, letters: Option<&Sharding>) -> String {
        self.merged(value, letters).unwrap_or_else(|| self.written_value(value))
    }

    fn merged<T: ToString>(&self, is: &T, letters: Option<&T>) -> Option<String> {
        self.one_rank()?.merged(&is.to_string(), &letters?.to_string())
    }
}

impl Graph {
    /// Returns the sharding constraint of a value as text.
    #[doc(hidden)]
    pub fn constraint_text(&self, value: ValueId) -> Option<String> {
        let known = &self.values[value.0];
        Some(self.meshes.type_text_with(known.pinned.as_deref()?, known.letters.as_deref()))
    }

    /// Returns `true` if the types of this graph are known along axes of one rank, and there are some.
    fn has_letters(&self) -> bool {
        self.lettered().is_some()
    }

    /// Returns the graph along the axes of one rank, with more ranks on each; `None` if it is not known.
    pub(crate) fn lettered(&self) -> Option<Graph> {
        let one_rank = self.meshes.one_rank()?;
        let own = |along: &Partly| {
            let number = |axis: usize| one_rank.axes().iter().position(|own| *own == axis);
            along.iter().filter_map(|(axis, is)| Some((number(*axis)?, is.clone()))).collect()
        };
        self.retyped(one_rank.alone(), &|known| known.letters.clone(), &|given| match given {
            Given::Whole { letters, .. } => {
                letters.clone().map(|value| Given::Whole { value, letters: None })
            }
            Given::Along(along) => Some(Given::Along(own(along))),
        })
        .map(|mut graph| {
            for statement in &mut graph.statements {
                if let GraphStatement::Move { along, .. } = statement {
                    *along = own(along);
                }
            }
            graph
        })
    }

    /// Returns the graph with more ranks along the axes of one rank; `None` if it is not known.
    fn widened(&self) -> Option<Graph> {
        let one_rank = self.meshes.one_rank()?;
        let parse = |shape: &[usize], text: &str| Sharding::parse(one_rank.wide(), shape, text).ok();
        let typed = |known: &Known| {
            let (is, letters) = (known.pinned.as_deref()?, known.letters.as_deref());
            let text = self.meshes.type_text_with(is, letters);
            if is.gradient.is_none() {
                let value = self.meshes.value_text_with(&is.value, letters.map(|letters| &letters.value));
                return Some(Arc::new(ShardingType::new(parse(&known.shape, &value)?, None)));
            }
            ShardingType::parse(one_rank.wide(), &known.shape, &text).ok().map(Arc::new)
        };
        self.retyped(one_rank.wide(), &typed, &|given| match given {
            Given::Whole { value, letters } => {
                let text = self.meshes.value_text_with(value, letters.as_deref());
                let value = Box::new(parse(value.shape(), &text)?);
                Some(Given::Whole { value, letters: None })
            }
            Given::Along(_) => Some(given.clone()),
        })
    }

    fn on_one_rank(&self, error: Error) -> Error {
        let axes = |one_rank: &Arc<OneRank>| one_rank.alone().to_string();
        let sizes = self.meshes.one_rank().map_or_else(String::new, axes);
        Error::OneRank { sizes, error: Box::new(error) }
    }

    /// Returns the graph on another mesh, with other types; `None` if a type is not known there.
    fn retyped(
        &self,
        mesh: &Mesh,
        typed: &dyn Fn(&Known) -> Option<Arc<ShardingType>>,
        given: &dyn Fn(&Given) -> Option<Given>,
    ) -> Option<Graph> {
        let mut graph = self.clone();
        graph.meshes = Meshes::new(mesh);
        for known in &mut graph.values {
            if known.pinned.is_some() {
                known.pinned = Some(typed(known)?);
            }
            known.letters = None;
        }
        for statement in &mut graph.statements {
            if let GraphStatement::Op { by: Some(by), .. } = statement {
                for one in by {
                    *one = given(one)?;
                }
            }
        }
        Some(graph)
    }
}

impl ShardingSolver {
    /// Returns the error of a graph whose letters are wrong.
    ///
    /// It is that of the graph with more ranks along these axes, which has whole types, if there is one.
    pub(crate) fn error_of_letters(&self, graph: &Graph, error: Error) -> Error {
        graph.on_one_rank(self.error_of_widened(graph).unwrap_or(error))
    }

    /// Returns the error of a graph that is wrong along other axes.
    ///
    /// With more ranks along those of one rank, an error of another kind may come before it.
    pub(crate) fn error_next_to_letters(&self, graph: &Graph, error: Error) -> Error {
        let before = self.error_of_widened(graph).filter(|_| error.is_of_types());
        match before.filter(|before| before.code() != error.code()) {
            Some(before) => graph.on_one_rank(before),
            None => error,
        }
    }

    /// Returns the error of a graph of a text that is wrong with more ranks along the axes of one rank.
    ///
    /// A graph that has changed since it was parsed has none.
    pub(crate) fn error_of_text(&self, graph: &Graph) -> Option<Error> {
        let text = graph.wide.as_ref().filter(|text| text.parsed == *graph)?;
        let error = self.without_network().solve(&text.wide).err()?;
        let sizes = OneRank::of(graph.mesh())?.alone().to_string();
        matches!(error, Error::NeedsRedistribute { .. })
            .then(|| Error::OneRank { sizes, error: Box::new(error) })
    }

    fn error_of_widened(&self, graph: &Graph) -> Option<Error> {
        self.solve(&graph.widened()?).err().filter(Error::is_of_types)
    }
}

impl Error {
    /// Returns `true` for an error of a program that does not depend on sizes.
    pub(crate) fn is_of_types(&self) -> bool {
        matches!(self, Error::NeedsRedistribute { .. } | Error::NoGradient { .. } | Error::Graph { .. })
    }
}

impl Program {
    /// Gives each value the letters of a program with the same values; returns `false` if they differ.
    ///
    /// They differ if one has a redistribution that the other has no use for.
    pub(crate) fn take_letters(&mut self, of: &Program) -> bool {
        let Some(one_rank) = self.meshes.one_rank() else { return false };
        let fit = |(value, letters): (&Value, &Value)| {
            let text = one_rank.merged(&value.ty.to_string(), &letters.ty.to_string());
            value.name == letters.name && text.is_some()
        };
        let all = self.values.len() == of.values.len() && self.values.iter().zip(&of.values).all(fit);
        if all {
            for (value, letters) in self.values.iter_mut().zip(&of.values) {
                value.letters = Some(Arc::clone(&letters.ty));
            }
        }
        all
    }

    /// Removes all letters.
    pub(crate) fn forget_letters(&mut self) {
        for value in &mut self.values {
            value.letters = None;
        }
    }

    /// Returns `true` if the letters of all values are known.
    ///
    /// A program prints all or none: without letters it is `I` along axes of one rank, which does not mix.
    pub(crate) fn has_letters(&self) -> bool {
        self.meshes.one_rank().is_some() && self.values.iter().all(|value| value.letters.is_some())
    }
}
