#![doc = include_str!("../docs/glossary.md")]
// What the page links to.
#![allow(unused_imports, reason = "links of the page")]

use crate::collectives::calls::{Call, Offer, Offers, Pattern, RankCall, RankCalls, Spmd, View};
use crate::collectives::{BufferLayout, Communicator, Compiled, Exchange, Hop, Trace};
use crate::kernels::random::{Draw, Generator, IndexRun, Key};
use crate::kernels::{CopySide, Nest};
use crate::layout::{At, Boundary, Layout, Mode, Stride};
use crate::ops::propagate::{Constraint, Propagation};
use crate::ops::rules::verify::Verdict;
use crate::ops::rules::{Rule, Strategy};
use crate::planner::{Level, Need, Phase, Plan, Step, StepOp, Topology};
use crate::program::{Elaborator, Graph, MoveRef, Pass, Program, Report};
use crate::sharding::recipes::Parallelism;
use crate::sharding::{
    Axis, AxisName, Coordinate, Cut, Exponent, GroupPattern, GroupRegistry, Mesh, PartialAxis, Placement,
    ProcessGroup, ProcessGroups, ReduceOp, Region, Sharding, SubAxis, Type,
};
