//! The properties of rules and their propagation, a file per concept.

mod composites;
mod cuts;
mod dtypes;
mod enumeration;
mod gradients;
mod gradients_page;
mod kept_rules;
mod norms;
mod parameters;
mod propagation;
mod reference_ops;
mod refused;
mod regions;
mod rules;
mod rules_page;
mod table;
mod torch_choices;
mod torch_names;
mod transposed;
mod typed;
mod written;
