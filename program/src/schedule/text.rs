//! A schedule as text: a line for each instruction.

use core::fmt;

use crate::schedule::{ArenaSlice, Instruction, Schedule, Transfer, TransferMember};

/// Formats a value with its offset, like `x@64`.
fn place(name: &str, at: ArenaSlice) -> String {
    format!("{name}@{}", at.offset)
}

/// Formats the results of redistributions.
fn made(moves: &[TransferMember]) -> String {
    let to: Vec<String> = moves.iter().map(|m| place(&m.values.1, m.target)).collect();
    to.join(", ")
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "rank {}, an arena of {} bytes", self.rank, self.arena_bytes)?;
        for instr in &self.instructions {
            match instr {
                Instruction::Call { kernel, args } => {
                    let call = &self.calls[*kernel as usize];
                    let args = args.start as usize..args.end as usize;
                    let all: Vec<String> = (self.names[args.clone()].iter().zip(&self.args[args]))
                        .map(|(name, at)| place(name, *at))
                        .collect();
                    let (takes, makes) = all.split_at(call.inputs.len());
                    writeln!(f, "{} = {}({})", makes.join(", "), call.call, takes.join(", "))?;
                }
                Instruction::Post { exchange } => {
                    let Transfer { moves, steps, .. } = &self.exchanges[*exchange as usize];
                    let from: Vec<String> = moves.iter().map(|m| place(&m.values.0, m.source)).collect();
                    write!(f, "post {} = {} by ", made(moves), from.join(", "))?;
                    for (n, step) in steps.iter().enumerate() {
                        write!(f, "{}{}", if n > 0 { ", then " } else { "" }, step.op)?;
                        if step.op.communicates() {
                            write!(f, " over {} with {:?}", step.over, step.members)?;
                        }
                    }
                    writeln!(f)?;
                }
                Instruction::Wait { exchange } => {
                    writeln!(f, "wait {}", made(&self.exchanges[*exchange as usize].moves))?;
                }
            }
        }
        Ok(())
    }
}
