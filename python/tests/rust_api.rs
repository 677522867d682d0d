//! The list of the library's public items, which the Python package provides or excludes with a reason.
//!
//! `python/rust_api.txt` is that list, with one path per line; `tests/test_names.py` compares it with the
//! package. A change of the library's public items changes the list:
//! `RESHARD_WRITE=1 cargo test -p reshard-python` writes it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use syn::{ImplItem, Item, UseTree, Visibility};

/// The crates with items for users of the package, and the folders of their sources.
const CRATES: [(&str, &str); 11] = [
    ("layout", "layout"),
    ("sharding", "sharding"),
    ("planner", "sharding/planner"),
    ("ops", "sharding/ops"),
    ("verify", "sharding/verify"),
    ("program", "program"),
    ("reference", "reference"),
    ("kernels", "kernels"),
    ("collectives", "collectives"),
    ("checkpoint", "checkpoint"),
    ("draw", "draw"),
];

/// Modules that are read, not called: theory in prose, slow definitions, and what crates share among themselves.
const NOT_CALLED: [&str; 4] = ["theory", "internal", "reference", "testing"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn is_hidden(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("doc")
            && attribute.parse_args::<syn::Ident>().is_ok_and(|argument| argument == "hidden")
    })
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

/// Collects the names that a `pub use` makes visible.
fn names(tree: &UseTree, into: &mut BTreeSet<String>) {
    match tree {
        UseTree::Path(path) => names(&path.tree, into),
        UseTree::Name(name) => {
            into.insert(name.ident.to_string());
        }
        UseTree::Rename(renamed) => {
            into.insert(renamed.rename.to_string());
        }
        UseTree::Group(group) => {
            for item in &group.items {
                names(item, into);
            }
        }
        UseTree::Glob(_) => {}
    }
}

/// The items of one crate: those visible from its root, and the public functions of its types.
#[derive(Default)]
struct Listing {
    visible: BTreeSet<String>,
    /// Types, traits and functions with `#[doc(hidden)]`, wherever they are defined.
    hidden: BTreeSet<String>,
    functions: BTreeSet<String>,
    methods: BTreeSet<(String, String)>,
}

impl Listing {
    /// Reads a file, and those of its modules. `open` is whether everything public in it can be reached from the root.
    fn read(&mut self, file: &Path, folder: &Path, open: bool) {
        let Ok(text) = fs::read_to_string(file) else { return };
        let parsed = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        for item in &parsed.items {
            self.item(item, folder, open);
        }
    }

    #[allow(clippy::wildcard_enum_match_arm, reason = "other items of syn are not public names")]
    fn item(&mut self, item: &Item, folder: &Path, open: bool) {
        match item {
            Item::Use(used) if is_hidden(&used.attrs) => {}
            Item::Struct(item) if is_hidden(&item.attrs) => self.hides(&item.ident),
            Item::Enum(item) if is_hidden(&item.attrs) => self.hides(&item.ident),
            Item::Trait(item) if is_hidden(&item.attrs) => self.hides(&item.ident),
            Item::Fn(item) if is_hidden(&item.attrs) => self.hides(&item.sig.ident),
            Item::Const(item) if is_hidden(&item.attrs) => self.hides(&item.ident),
            Item::Type(item) if is_hidden(&item.attrs) => self.hides(&item.ident),
            Item::Impl(item) if is_hidden(&item.attrs) => {}
            Item::Mod(item) if is_hidden(&item.attrs) => {}
            Item::Use(used) if open && is_public(&used.vis) => names(&used.tree, &mut self.visible),
            Item::Struct(item) if open && is_public(&item.vis) => self.sees(&item.ident),
            Item::Enum(item) if open && is_public(&item.vis) => self.sees(&item.ident),
            Item::Trait(item) if open && is_public(&item.vis) => self.sees(&item.ident),
            Item::Fn(item) if is_public(&item.vis) => {
                if open {
                    self.sees(&item.sig.ident);
                }
                self.functions.insert(item.sig.ident.to_string());
            }
            Item::Impl(item) if item.trait_.is_none() => {
                let syn::Type::Path(of) = &*item.self_ty else { return };
                let Some(of) = of.path.segments.last() else { return };
                for part in &item.items {
                    if let ImplItem::Fn(method) = part
                        && is_public(&method.vis)
                        && !is_hidden(&method.attrs)
                    {
                        self.methods.insert((of.ident.to_string(), method.sig.ident.to_string()));
                    }
                }
            }
            Item::Mod(item) => {
                let name = item.ident.to_string();
                let tested = item.attrs.iter().any(|attribute| attribute.path().is_ident("cfg"));
                if tested || NOT_CALLED.contains(&name.as_str()) {
                    return;
                }
                let (open, within) = (open && is_public(&item.vis), folder.join(&name));
                if let Some((_, items)) = &item.content {
                    for item in items {
                        self.item(item, &within, open);
                    }
                } else {
                    self.read(&folder.join(format!("{name}.rs")), &within, open);
                    self.read(&within.join("mod.rs"), &within, open);
                }
            }
            _ => {}
        }
    }

    fn hides(&mut self, name: &syn::Ident) {
        self.hidden.insert(name.to_string());
    }

    fn sees(&mut self, name: &syn::Ident) {
        self.visible.insert(name.to_string());
    }

    /// The paths: `ShardingType`, `ShardingType::method` and `function`.
    fn paths(&self) -> Vec<String> {
        let visible: BTreeSet<&String> = self.visible.difference(&self.hidden).collect();
        let types = visible.iter().filter(|name| !self.functions.contains(**name)).map(ToString::to_string);
        let methods = self.methods.iter().filter(|(of, _)| visible.contains(of));
        let functions = self.functions.iter().filter(|name| visible.contains(*name)).cloned();
        types.chain(methods.map(|(of, name)| format!("{of}::{name}"))).chain(functions).collect()
    }
}

#[test]
fn the_list_of_public_items_is_that_of_the_sources() {
    let mut lines = Vec::new();
    for (name, folder) in CRATES {
        let source = root().join(folder).join("src");
        let mut listing = Listing::default();
        listing.read(&source.join("lib.rs"), &source, true);
        assert!(listing.visible.len() > 3, "{folder}: {:?}", listing.visible);
        lines.extend(listing.paths().into_iter().map(|path| format!("{name}::{path}")));
    }
    lines.sort();
    lines.dedup();
    let (list, file) = (lines.join("\n") + "\n", root().join("python/rust_api.txt"));
    if std::env::var_os("RESHARD_WRITE").is_some() {
        fs::write(&file, &list).unwrap();
    }
    let kept = fs::read_to_string(&file).unwrap_or_default();
    let (kept, new): (BTreeSet<_>, BTreeSet<_>) = (kept.lines().collect(), list.lines().collect());
    let gone: Vec<_> = kept.difference(&new).collect();
    let come: Vec<_> = new.difference(&kept).collect();
    assert!(
        gone.is_empty() && come.is_empty(),
        "gone: {gone:?}, new: {come:?}; `RESHARD_WRITE=1 cargo test -p reshard-python` writes the list; \
         python/names.toml has the reasons for missing names"
    );
}
