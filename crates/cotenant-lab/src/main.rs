//! The `cotenant-lab` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    cotenant_lab::main()
}
