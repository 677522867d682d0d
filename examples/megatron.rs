//! Megatron as per-device code: from einsum to a checked boundary, with every statement executed.
//!
//! ```sh
//! cargo run --example megatron
//! ```

use std::error::Error;

use reshard::program::schedule::CompileOptions;
use reshard::program::{ComputeRates, Graph, ImplicitRedistribution, Program, ShardingSolver};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Lists the redistributions that communicate, forward and backward.
fn moves(program: &Program) -> Vec<String> {
    let bytes = |m: &reshard::program::RedistributionRef<'_>| {
        let back = m.backward.map_or(0, |plan| plan.received_bytes());
        (m.forward.received_bytes(), back)
    };
    let list = program.redistributions().filter(|m| bytes(m) != (0, 0));
    list.map(|m| {
        format!("{} -> {}: {} B forward, {} B backward", m.from.ty, m.to.ty, bytes(&m).0, bytes(&m).1)
    })
    .collect()
}

fn elaborated(text: &str) -> Result<Program> {
    Ok(ShardingSolver::new().implicit_redistribution(ImplicitRedistribution::Deny).solve(&text.parse()?)?)
}

/// A layer with sharded weights, written globally: two einsums, and an activation between them.
const GLOBAL: &str = "
    mesh tp=4
    x: f32[8,2,16] I
    up: f32[16,64] S(1)
    down: f32[64,16] S(0)
    xr: R = x
    h = sbh,hi->sbi(xr, up)
    a = gelu(h)
    o = sbi,ih->sbh(a, down)
    y: I = o
    z = square(y)
    loss = sum(z)";

/// The same layer as per-device code: between local and end values are shards, and collectives are explicit.
fn local(leaves: &str) -> String {
    format!(
        "
    mesh tp=4
    x: f32[8,2,16] I
    up: f32[16,64] S(1)
    down: f32[64,16] S(0)
    local tp
      in x: R
      in up: S(1)
      in down: S(0)
      h = sbh,hi->sbi(x, up)
      a = gelu(h)
      o = sbi,ih->sbh(a, down)
      {leaves}
    end
    z = square(y)
    loss = sum(z)"
    )
}

fn main() -> Result<()> {
    // 1. Einsum implies the communication: i is contracted and sharded, so o is partial; and x, which is
    //   multiplied with different columns of up on every rank, has a partial gradient. So the redistributions
    //   of y and x are Megatron's g and f: an all_reduce each, one forward, one backward.
    let global = elaborated(GLOBAL)?;
    println!("global:   {}", moves(&global).join("; "));
    assert_eq!(
        moves(&global),
        ["I -> R: 0 B forward, 1536 B backward", "P(sum) -> I: 1536 B forward, 0 B backward"]
    );

    // 2. The same as per-device code, with its all_reduce by name. Taking x as R is f, whose gradient is reduced; the all_reduce to I is g.
    let by_hand = elaborated(&local("s: I = all_reduce(o)\n      out y: I = s"))?;
    println!("by hand:  {}", moves(&by_hand).join("; "));
    assert_eq!(moves(&by_hand), moves(&global));

    // 3. The all_reduce forgotten. On one device that is correct, so a test there passes; here it is an
    //   error, for any number of ranks.
    for ranks in [1, 4, 64] {
        let text = local("out y: R = o").replace("tp=4", &format!("tp={ranks}"));
        let refused = text.parse::<Graph>().unwrap_err().to_string();
        println!("on {ranks:>2}:    {refused}");
        assert!(refused.ends_with(
            "`y` varies over tp but is declared R: sbi,ih->sbh sums a dim that tp shards; declare P, or all_reduce it"
        ));
    }

    // 4. Or declared partial, as it is, and reduced later where that is cheaper: here outside, to a shard of
    //   the sequence.
    let later = local("out p: P = o").replace("z = square(y)", "y: S(0) = p\n    z = square(y)");
    let later = elaborated(&later)?;
    println!("partial:  {}", moves(&later).join("; "));
    assert_eq!(moves(&later)[1], "P(sum) -> S(0): 768 B forward, 768 B backward");

    // 5. Replicate forward, partial backward: ranks that hold the same value need not do the same work with
    //   it. As R it may be used for different work on every rank, so its gradient is summed: an all_reduce
    //   backward too, which I does without.
    let replicate = elaborated(&local("s: R = all_reduce(o)\n      out y: R = s"))?;
    println!("as R:     {}", moves(&replicate).join("; "));
    assert_eq!(moves(&replicate)[1], "P(sum) -> R: 1536 B forward, 1536 B backward");

    // 6. Types are for checking: the schedule of a rank has none. Its calls are those of one device on local
    //   shapes.
    let schedule = by_hand.compile(0, &CompileOptions::default())?;
    let erased = schedule.to_string();
    println!("a rank:\n{}", erased.lines().take(8).collect::<Vec<_>>().join("\n"));
    assert!(!erased.contains("S(") && !erased.contains("each"));

    // 7. And the price is known before anything runs.
    let report = by_hand.report(&ComputeRates::uniform());
    println!(
        "received: {} B forward, {} B backward",
        report.traffic.forward.received_bytes, report.traffic.backward.received_bytes
    );
    assert_eq!((report.traffic.forward.received_bytes, report.traffic.backward.received_bytes), (1536, 1536));
    Ok(())
}
