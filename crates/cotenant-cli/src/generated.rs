//! What comes out of a program's definition: completions and man pages.

use clap::Command;
use clap_complete::Shell;
use std::io::{self, Write};
use std::path::Path;

/// Writes the completions of a program for a shell.
///
/// # Errors
/// Where `out` takes no more.
pub fn completions(mut program: Command, shell: Shell, out: &mut dyn Write) -> io::Result<()> {
    let (name, mut text) = (program.get_name().to_owned(), Vec::new());
    clap_complete::generate(shell, &mut program, name, &mut text); // it panics where it cannot write
    out.write_all(&text)
}

/// Writes the man page of a program, or of one of its subcommands.
///
/// # Errors
/// Where there is no such subcommand, or `out` takes no more.
pub fn man_page(mut program: Command, subcommand: Option<&str>, out: &mut dyn Write) -> anyhow::Result<()> {
    program.build();
    let command = match subcommand {
        None => program,
        Some(name) => {
            let found = program.find_subcommand(name).cloned();
            found.ok_or_else(|| {
                crate::usage(format!("there is no subcommand '{name}'; see {} --help", program.get_name()))
            })?
        }
    };
    Ok(clap_mangen::Man::new(command).render(&mut &mut *out)?)
}

/// Writes the man pages of a program and of its subcommands into a folder, which is made.
///
/// # Errors
/// Where the folder takes no files.
pub fn man_pages(program: Command, folder: &Path) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    clap_mangen::generate_to(program, folder)
}
