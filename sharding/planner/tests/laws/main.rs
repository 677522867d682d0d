//! The properties of plans, a file per concept.

mod algebra;
mod any_order;
mod budget;
mod by_domain;
mod cost_model;
mod curves;
mod detours;
mod golden;
mod greedy;
mod groups;
mod lower_bound;
mod mirror;
mod one_exchange;
mod peers;
mod planner;
mod planner_laws;
mod prices;
mod ragged;
mod redistribute;
mod rooms;
mod together;
mod two_mesh;
mod words;
