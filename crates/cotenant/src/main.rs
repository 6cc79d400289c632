//! The `cotenant` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    cotenant::main()
}
