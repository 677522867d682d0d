//! Several meshes of one world: texts round-trip, ops run on one mesh, and errors suggest the lines to write.

use reshard_ops::rules::OpTable;
use reshard_program::{Error, Graph, ImplicitRedistribution, Program, ShardingSolver};

/// Two meshes with the same ranks in a different order, and two with one half each.
const MESHES: &str = "\
mesh dp=2,tp=2
mesh experts: edp=1,ep=4
mesh first: tp=2
mesh second: tp=2@2
mesh ring: x=4@[0,1,3,2]
";

fn graph(rest: &str) -> Result<Graph, Error> {
    format!("{MESHES}{rest}").parse()
}

fn elaborated(rest: &str, moves: ImplicitRedistribution) -> Result<Program, Error> {
    ShardingSolver::new().implicit_redistribution(moves).solve(&graph(rest)?)
}

#[test]
fn a_graph_on_several_meshes_is_read_as_it_is_printed() {
    let text = format!(
        "{MESHES}\
x: f32[8,16] S(0),R
y: f32[8,16] I,S(0) on experts
w: f32[8,16] S(0)|P(sum) on second
e: I,S(0) on experts = x
z: S(1) on ring = y
a: S(0)|- on first; b: S(1) on first = chunk(z, chunks=2, dim=0)
s: I on second = sum(y)
gradient s wrt y
no_grad
t: P(avg) on second = neg(w)
"
    );
    let graph: Graph = text.parse().unwrap();
    let printed = graph.to_string();
    assert_eq!(printed.parse::<Graph>().unwrap(), graph);
    assert_eq!(printed.parse::<Graph>().unwrap().to_string(), printed);
    for (line, expected) in printed.lines().zip(text.lines()) {
        assert_eq!(line.split(" = ").next(), expected.split(" = ").next());
    }
    // The name of the first mesh can be parsed, and names resolve to their meshes.
    let named = format!("{MESHES}x: f32[8,16] S(0),R on default\n");
    assert_eq!(named.parse::<Graph>().unwrap(), format!("{MESHES}x: f32[8,16] S(0),R\n").parse().unwrap());
    for (name, mesh) in graph.meshes().iter() {
        assert_eq!(graph.meshes().get(name).unwrap(), mesh);
        assert_eq!(graph.meshes().name(mesh), Some(name));
    }
    // Meshes with the same ranks and axes are one mesh, under any name.
    let twice = format!("{MESHES}mesh again: edp=1,ep=4\nx: f32[8] I,S(0) on again\n");
    assert!(twice.parse::<Graph>().unwrap().to_string().ends_with("x: f32[8] I,S(0) on experts\n"));
}

/// A value may be named `mesh`.
#[test]
fn a_value_that_is_called_mesh_is_no_mesh() {
    let graph: Graph = "mesh x=2\nmesh: f32[8] S(0)\na = relu(mesh)\nb: R = mesh".parse().unwrap();
    assert_eq!(graph.to_string().parse::<Graph>().unwrap(), graph);
    let made: Graph = "mesh x=2\na: f32[8] S(0)\nmesh = relu(a)\n".parse().unwrap();
    assert!(made.value("mesh").is_some());
}

#[test]
fn a_mesh_that_cannot_be_is_refused_with_its_line() {
    let refused = |text: &str, kind: &str, said: &str| {
        let e = graph(text).unwrap_err();
        assert_eq!(e.code(), kind, "{e}");
        let message = e.to_string();
        assert!(message.starts_with("line 6: ") && message.contains(said), "{message}");
    };
    refused("mesh experts: ep=2", "program", "two meshes are named `experts`");
    refused("mesh default: ep=2", "program", "`default` is the name of the first mesh");
    refused("mesh big: ep=8", "program", "rank 4, which is not in the first mesh dp=2,tp=2");
    refused("mesh late: ep=2@3", "program", "rank 4, which is not in the first mesh");
    refused("mesh far: ep=9999999999999", "program", "rank 4, which is not in the first mesh");
    refused("mesh two words: ep=2", "program", "invalid mesh name \"two words\"");
    refused("mesh 2: ep=2", "program", "invalid mesh name \"2\"");
    refused("mesh ep=2", "parse", "meshes after the first need one");
    refused("mesh ep=2:1", "parse", "meshes after the first need one");
    refused("mesh bad: ep=0", "mesh", "mesh bad: the axis ep has no ranks");
    refused(
        "x: f32[8] R on stage",
        "program",
        "x: unknown mesh `stage`; the program has default (dp=2,tp=2), experts (edp=1,ep=4)",
    );
    refused(
        "x: f32[8] on experts",
        "program",
        "`x` is on experts but has no type; write its sharding, such as `S(0),R on experts`",
    );
    refused("x: f32[8] S(0) on experts", "placement_count", "x: ");
    refused("x: f32[8] S(0),S(0) on ring", "placement_count", "x: ");
    let first = "mesh experts: ep=4\nx: f32[8] S(0)".parse::<Graph>().unwrap_err();
    assert_eq!(
        first.to_string(),
        "line 1: the first mesh has all ranks and no name; write `mesh ep=4` above `mesh experts: ep=4`"
    );
    let many = (0..64).map(|n| format!("mesh m{n}: x=2\n")).collect::<Vec<_>>().concat();
    assert!(
        format!("mesh x=2\n{many}").parse::<Graph>().unwrap_err().to_string().contains("at most 64 meshes")
    );
    let large = "mesh x=1048577\nmesh a: x=2".parse::<Graph>().unwrap_err();
    assert!(large.to_string().contains("several meshes has at most 1048576 ranks"), "{large}");
}

#[test]
fn other_sizes_of_the_first_mesh_keep_its_ranks_where_there_are_others() {
    let text = "mesh dp=2,tp=2\nmesh experts: ep=4\nx: f32[8] S(0) on experts\n";
    let with = |sizes: &[(&str, usize)]| Graph::parse_with_axes(OpTable::standard().into(), text, sizes);
    let same = with(&[("dp", 4), ("tp", 1)]).unwrap();
    assert_eq!(same.mesh().to_string(), "dp=4,tp=1");
    let said = "line 2: with these sizes the first mesh dp=4,tp=2 has 8 ranks, but `mesh experts: ep=4` is for 4; \
                write the sizes of all meshes in the program";
    assert_eq!(with(&[("dp", 4)]).unwrap_err().to_string(), said);
    assert!(with(&[("ep", 2)]).unwrap_err().to_string().contains("ep"));
}

#[test]
fn a_type_on_no_mesh_of_the_program_is_refused() {
    use reshard_kernels::DType;
    use reshard_sharding::ShardingType;
    let mut graph = graph("").unwrap();
    let is = |mesh: &str, text: &str| ShardingType::parse(&mesh.parse().unwrap(), &[8], text).unwrap();
    let e = graph.input_with_type("x", DType::F32, is("a=2", "S(0)")).unwrap_err();
    assert!(
        e.to_string().contains(
            "`x` is S(0) on a=2, which is not a mesh of the program; its meshes are default (dp=2,tp=2)"
        ),
        "{e}"
    );
    let torn = ShardingType::new(is("tp=2", "S(0)").value, is("tp=2@2", "S(0)").gradient);
    let e = graph.input_with_type("y", DType::F32, torn).unwrap_err();
    assert!(e.to_string().contains("`y` is on tp=2 and its gradient on tp=2@2"), "{e}");
}

/// By default an op runs on the mesh of its first operand; factories run on the first mesh.
#[test]
fn an_op_runs_where_its_result_is_pinned_or_where_its_first_operand_is() {
    let program = elaborated(
        "x: f32[8,16] S(0),R
         y: f32[8,16] R,S(0) on experts
         a = add(x, y)
         b = add(y, x)
         c: R,S(0) on experts = add(x, x)
         n = relu(c)
         o = ones(shape=[8,16])
         p: R on first = zeros(shape=[8])
         l = cross_entropy(y, t)
         s = mean(p)"
            .replace("l = cross_entropy(y, t)", "t: i64[8] R,R\n         l = cross_entropy(y, t)")
            .as_str(),
        ImplicitRedistribution::Allow,
    )
    .unwrap();
    let on = |name: &str| {
        let mesh = program.get(program.value(name).unwrap()).ty.value.mesh();
        program.meshes().name(mesh).unwrap().to_owned()
    };
    let found = ["a", "b", "c", "n", "o", "p", "l", "s"].map(on);
    assert_eq!(found, ["default", "experts", "experts", "experts", "default", "first", "experts", "first"]);
    // Intermediates are on one mesh too, also those of decomposed ops.
    for item in program.statements() {
        if let reshard_program::Statement::Op { inputs, outputs, .. } = item {
            let meshes = inputs.iter().chain(outputs).map(|v| program.get(*v).ty.value.mesh());
            let meshes: Vec<_> = meshes.collect();
            assert!(meshes.windows(2).all(|pair| pair[0] == pair[1]), "{program}");
        }
    }
    let again: Program = program.to_string().parse().unwrap();
    assert_eq!(again.to_string(), program.to_string());
}

#[test]
fn operands_on_different_meshes_are_refused_with_the_moves_to_write() {
    let values = "x: f32[8,16] I,I\ny: f32[8,16] I,S(0) on experts\n";
    let refused = |rest: &str, moves| elaborated(&format!("{values}{rest}"), moves).unwrap_err();
    let e = refused("z = add(y, x)", ImplicitRedistribution::Deny);
    assert_eq!(e.code(), "needs_redistribute");
    let said = e.to_string();
    assert!(
        said.contains(
            "x is I,I and has to be I,S(0) on experts, which needs a redistribution that is not written"
        ),
        "{said}"
    );
    assert!(said.contains("write `x.1: I,S(0) on experts = x` ("), "{said}");
    assert!(said.starts_with("z = add(y, x): ") && said.contains(" and `z = add(y, x.1)`"), "{said}");
    // The suggested lines fix the error.
    let fixed = format!("{values}x.1: I,S(0) on experts = x\nz = add(y, x.1)");
    elaborated(&fixed, ImplicitRedistribution::Deny).unwrap();
    // The error names the first mesh if it is the required one.
    let said = refused("z = add(x, y)", ImplicitRedistribution::Deny).to_string();
    assert!(
        said.contains("y is I,S(0) on experts and has to be ") && said.contains(" on default, "),
        "{said}"
    );
    // Another view of the same shards communicates nothing.
    let shards = "a: f32[8,16] S(0),S(0)\nb: f32[8,16] R,S(0) on experts\nc = add(a, b)";
    let free = elaborated(shards, ImplicitRedistribution::LocalOnly).unwrap();
    assert_eq!(
        free.redistributions().map(|m| m.to_string()).collect::<Vec<_>>(),
        ["b: I,S(0) on experts -> S(0),S(0): forward 0 bytes, backward 0 bytes"]
    );
    assert_eq!(refused("z = add(x, y)", ImplicitRedistribution::LocalOnly).code(), "needs_redistribute");
}

/// An op runs on the mesh of its first constrained result, and the others are redistributed.
#[test]
fn results_that_are_said_to_be_on_another_mesh_are_moved_there() {
    let text = "x: f32[8,16] S(0),R\na: R on first; b: R on second = chunk(x, chunks=2, dim=0)\n_; c: R on second = chunk(x, chunks=2, dim=0)";
    let program = elaborated(text, ImplicitRedistribution::Allow).unwrap();
    let made: Vec<&str> = (program.statements().iter())
        .filter_map(|item| match item {
            reshard_program::Statement::Op { outputs, .. } => {
                program.meshes().name(program.get(outputs[0]).ty.value.mesh())
            }
            reshard_program::Statement::Input(_)
            | reshard_program::Statement::Redistribute { .. }
            | reshard_program::Statement::NoGrad => None,
        })
        .collect();
    assert_eq!(made, ["first", "second"]);
    let on = |name: &str| program.get(program.value(name).unwrap()).ty.value.mesh().to_string();
    assert_eq!(["a", "b", "c"].map(on), ["tp=2", "tp=2@2", "tp=2@2"]);
    assert_eq!(program.to_string().parse::<Program>().unwrap().to_string(), program.to_string());
    assert_eq!(elaborated(text, ImplicitRedistribution::Deny).unwrap_err().code(), "needs_redistribute");
}

#[test]
fn a_move_between_meshes_that_no_plan_makes_says_why() {
    let text = "mesh a=262144\nmesh e: b=512,c=512\nx: f32[262144] S(0)\ny: S(0),S(0) on e = x";
    let e = ShardingSolver::new().solve(&text.parse().unwrap()).unwrap_err();
    assert_eq!(e.code(), "program");
    assert!(e.to_string().starts_with("y = x: ") && e.to_string().contains("limited to 131072 ranks"), "{e}");
}
