//! The JSON form of a part, and the checks of a part that was read.

use std::collections::HashMap;

use reshard_mapping::Dtype;
use serde::{Deserialize, Serialize};

use crate::dtype;
use crate::error::{Error, shown};
use crate::names::grouped;
use crate::part::{Entry, Loop, Named, RankPart, Template};
use crate::side::MOST_RANKS;

const VERSION: u32 = 1;

/// The largest number of loops of a box, and of conversions of an element.
const MOST_LOOPS: usize = 128;
const MOST_CASTS: usize = 16;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct JsonPart {
    version: u32,
    hash: String,
    rank: usize,
    receives: Vec<JsonCopy>,
    sends: Vec<JsonCopy>,
    fills: Vec<JsonFill>,
    /// The buffers that the boxes are in; those of other ranks have count 0.
    sources: Vec<JsonNamed>,
    targets: Vec<JsonNamed>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct JsonCopy {
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<usize>,
    source: String,
    target: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    cast: Vec<String>,
    source_offset: u64,
    target_offset: u64,
    loops: Vec<[u64; 3]>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct JsonFill {
    target: String,
    offset: u64,
    /// Number of zeros.
    count: u64,
    /// Extents and strides, if the zeros are not contiguous.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    loops: Vec<[u64; 2]>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct JsonNamed {
    name: String,
    dtype: String,
    count: u64,
}

impl RankPart {
    /// Returns the JSON form, which [`RankPart::from_json`] reads.
    ///
    /// `receives` and `sends` have `from` or `to`, `source`, `target`, `cast` (the chain of types, if there is a
    /// conversion), `source_offset`, `target_offset`, and `loops`: extent, source stride and target stride, outermost
    /// first. `fills` have `target`, `offset`, `count`, and `loops` if they are not contiguous.
    pub fn to_json(&self) -> String {
        let copy = |entry: &Entry, is_send: bool| {
            let template = &self.templates[entry.template];
            JsonCopy {
                from: template.peer.filter(|_| !is_send),
                to: template.peer.filter(|_| is_send),
                source: self.sources[entry.source].name.clone(),
                target: self.targets[entry.target].name.clone(),
                cast: template.cast.iter().map(|dtype| dtype::name(*dtype)).collect(),
                source_offset: entry.source_offset,
                target_offset: entry.target_offset,
                loops: template.loops.iter().map(|x| [x.extent, x.source_stride, x.target_stride]).collect(),
            }
        };
        let fill = |entry: &Entry| {
            let template = &self.templates[entry.template];
            let is_dense = matches!(&template.loops[..], [] | [Loop { target_stride: 1, .. }]);
            let loops = template.loops.iter().map(|x| [x.extent, x.target_stride]);
            JsonFill {
                target: self.targets[entry.target].name.clone(),
                offset: entry.target_offset,
                count: template.elements(),
                loops: if is_dense { Vec::new() } else { loops.collect() },
            }
        };
        let named =
            |of: &Named| JsonNamed { name: of.name.clone(), dtype: dtype::name(of.dtype), count: of.count };
        let part = JsonPart {
            version: VERSION,
            hash: format!("{:016x}", self.hash),
            rank: self.rank,
            receives: self.receives.iter().map(|entry| copy(entry, false)).collect(),
            sends: self.sends.iter().map(|entry| copy(entry, true)).collect(),
            fills: self.fills.iter().map(fill).collect(),
            sources: self.sources.iter().map(named).collect(),
            targets: self.targets.iter().map(named).collect(),
        };
        // Only maps whose keys are not texts cannot be written.
        serde_json::to_string(&part).unwrap_or_default()
    }

    /// Reads the JSON form.
    ///
    /// Errors: `invalid` for a text that is not a part.
    pub fn from_json(text: &str) -> Result<Self, Error> {
        let read: JsonPart = serde_json::from_str(text)
            .map_err(|error| Error::invalid(format!("not a part of a plan: {error}; export it again")))?;
        if read.version != VERSION {
            let message = format!(
                "a part has version {}, and {VERSION} is supported; export the plan again",
                read.version
            );
            return Err(Error::invalid(message));
        }
        let hash = u64::from_str_radix(&read.hash, 16).map_err(|_| {
            Error::invalid(format!("the hash `{}` is not 16 hexadecimal digits", shown(&read.hash)))
        })?;
        let named = |list: Vec<JsonNamed>| -> Result<Vec<Named>, Error> {
            let one =
                |of: JsonNamed| Ok(Named { dtype: dtype::named(&of.dtype)?, name: of.name, count: of.count });
            let mut all: Vec<Named> = list.into_iter().map(one).collect::<Result<_, Error>>()?;
            all.sort_by_cached_key(Named::key);
            Ok(all)
        };
        let (sources, targets) = (named(read.sources)?, named(read.targets)?);
        let mut reader = Reader {
            templates: Vec::new(),
            known: HashMap::new(),
            names: [
                sources.iter().enumerate().map(|(k, of)| (of.name.clone(), k)).collect(),
                targets.iter().enumerate().map(|(k, of)| (of.name.clone(), k)).collect(),
            ],
        };
        let copies = |reader: &mut Reader, list: &[JsonCopy], is_send: bool| -> Result<Vec<Entry>, Error> {
            list.iter().map(|copy| reader.copy(copy, is_send)).collect()
        };
        let receives = copies(&mut reader, &read.receives, false)?;
        let sends = copies(&mut reader, &read.sends, true)?;
        let fills = read.fills.iter().map(|fill| reader.fill(fill)).collect::<Result<_, _>>()?;
        let templates = reader.templates;
        Self { hash, rank: read.rank, sources, targets, templates, receives, sends, fills }.checked()
    }

    /// Returns the part if its numbers are within the limits and its names are in canonical order.
    pub(crate) fn checked(self) -> Result<Self, Error> {
        let invalid = |reason: String| {
            Err(Error::invalid(format!(
                "the part of rank {} is not valid: {reason}; export it again",
                self.rank
            )))
        };
        if self.rank >= MOST_RANKS {
            return invalid(format!("ranks are below {MOST_RANKS}"));
        }
        for template in &self.templates {
            if template.loops.len() > MOST_LOOPS
                || template.cast.len() > MOST_CASTS
                || template.cast.len() == 1
            {
                return invalid("a box has too many loops, or not two types at least".to_owned());
            }
            let (source, target) = template.spans();
            let most = u64::MAX >> 4;
            let is_over = |n: u64| n >= most;
            if template.loops.iter().any(|x| x.extent < 2)
                || is_over(source)
                || is_over(target)
                || is_over(template.elements())
            {
                return invalid("a loop has an extent below 2, or a box is over 2^60 elements".to_owned());
            }
            if template.peer.is_some_and(|peer| peer >= MOST_RANKS) {
                return invalid(format!("ranks are below {MOST_RANKS}"));
            }
        }
        for (list, is_copy) in [(&self.receives, true), (&self.sends, true), (&self.fills, false)] {
            let fits = |entry: &Entry| {
                self.templates[entry.template].peer.is_some() == is_copy
                    && entry.source_offset < u64::MAX >> 4
                    && entry.target_offset < u64::MAX >> 4
            };
            if !list.iter().all(fits) {
                return invalid("a box is in the wrong list, or its offset is over 2^60".to_owned());
            }
        }
        for tensors in [&self.sources, &self.targets] {
            if let Some(of) = tensors.iter().find(|of| of.name.contains('\0') || of.count > u64::MAX >> 4) {
                return invalid(format!("the tensor `{}` has no valid name or count", shown(&of.name)));
            }
            let keys: Vec<_> = tensors.iter().map(Named::key).collect();
            if !keys.is_sorted() {
                return invalid("its tensors are not in canonical order".to_owned());
            }
            let mut names: Vec<&str> = tensors.iter().map(|of| &of.name[..]).collect();
            names.sort_unstable();
            if let Some(two) = names.windows(2).find(|two| two[0] == two[1]) {
                return invalid(format!("two tensors are named `{}`", shown(two[0])));
            }
        }
        let [sources, targets] = self.sizes();
        if grouped(&self.sources, &sources).is_none() || grouped(&self.targets, &targets).is_none() {
            return invalid("its tensors have more than 2^64 elements".to_owned());
        }
        Ok(self)
    }
}

/// The templates and names of a part that is read.
struct Reader {
    templates: Vec<Template>,
    known: HashMap<Template, usize>,
    names: [HashMap<String, usize>; 2],
}

impl Reader {
    fn template(&mut self, template: Template) -> usize {
        *self.known.entry(template).or_insert_with_key(|template| {
            self.templates.push(template.clone());
            self.templates.len() - 1
        })
    }

    fn name(&self, list: usize, name: &str) -> Result<usize, Error> {
        self.names[list].get(name).copied().ok_or_else(|| {
            let key = ["sources", "targets"][list];
            Error::invalid(format!(
                "`{}` is not in \"{key}\" of its part; export the plan again",
                shown(name)
            ))
        })
    }

    fn copy(&mut self, copy: &JsonCopy, is_send: bool) -> Result<Entry, Error> {
        let (peer, other) = if is_send { (copy.to, copy.from) } else { (copy.from, copy.to) };
        let (Some(peer), None) = (peer, other) else {
            let message =
                "a box of \"receives\" has \"from\", and one of \"sends\" has \"to\"; export the plan again";
            return Err(Error::invalid(message));
        };
        let cast: Vec<Dtype> = copy.cast.iter().map(|name| dtype::named(name)).collect::<Result<_, _>>()?;
        let loops = copy.loops.iter().map(|[extent, source_stride, target_stride]| Loop {
            extent: *extent,
            source_stride: *source_stride,
            target_stride: *target_stride,
        });
        let template = Template { peer: Some(peer), cast, loops: loops.collect() };
        Ok(Entry {
            source: self.name(0, &copy.source)?,
            target: self.name(1, &copy.target)?,
            template: self.template(template),
            source_offset: copy.source_offset,
            target_offset: copy.target_offset,
        })
    }

    fn fill(&mut self, fill: &JsonFill) -> Result<Entry, Error> {
        let of_loop =
            |[extent, stride]: &[u64; 2]| Loop { extent: *extent, source_stride: 0, target_stride: *stride };
        let loops = match (fill.loops.is_empty(), fill.count) {
            (true, 1) => Vec::new(),
            (true, count) => vec![Loop { extent: count, source_stride: 0, target_stride: 1 }],
            (false, _) => fill.loops.iter().map(of_loop).collect(),
        };
        let template = Template { peer: None, cast: Vec::new(), loops };
        if template.elements() != fill.count {
            let message = format!(
                "a fill of `{}` has count {}, and its loops have {} elements; export the plan again",
                shown(&fill.target),
                fill.count,
                template.elements()
            );
            return Err(Error::invalid(message));
        }
        let target = self.name(1, &fill.target)?;
        let template = self.template(template);
        Ok(Entry { template, source: 0, target, source_offset: 0, target_offset: fill.offset })
    }
}
