//! The command line of reshard: `reshard layout`, `shards`, `plan` and `run`.

mod cli;

fn main() -> std::process::ExitCode {
    cli::main()
}
