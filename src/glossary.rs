#![doc = include_str!("../docs/glossary.md")]
// What the page links to.
#![allow(unused_imports, reason = "links of the page")]

use crate::collectives::calls::{
    CollectiveCall, FrameworkGroup, FrameworkGroups, RankCall, RankCalls, SpmdProgram, View,
};
use crate::collectives::{BufferLayout, Communicator, CompiledPlan, Exchange, Hop, TrafficLog};
use crate::kernels::random::{Draw, Generator, IndexRun, Key};
use crate::kernels::{CopySide, LoopNest};
use crate::layout::{AxisStride, Boundary, Layout, Mode, Stride};
use crate::ops::propagate::OutputConstraint;
use crate::ops::rules::{Rule, Strategy};
use crate::planner::{Level, MinTraffic, Phase, Plan, Step, StepOp, Topology};
use crate::program::{Graph, Pass, Program, RedistributionRef, Report, ShardingSolver};
use crate::sharding::recipes::Parallelism;
use crate::sharding::{
    Axis, AxisName, Coordinate, DimPartition, Exponent, GroupPattern, GroupRegistry, Mesh, PartialAxis,
    Placement, ProcessGroup, ProcessGroups, ReduceOp, Region, Sharding, ShardingType, SubAxis,
};
