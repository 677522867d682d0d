//! The command line of reshard: `reshard layout`, `shards`, `plan`, `propagate`, `run` and others.

mod cli;

fn main() -> std::process::ExitCode {
    cli::main()
}
