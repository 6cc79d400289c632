//! Products of a program's definition: completions and man pages.

use clap::Command;
use clap_complete::Shell;
use std::io::{self, Write};
use std::path::Path;

/// Writes the completions of a program for a shell.
///
/// # Errors
/// A closed `out`.
pub fn completions(mut program: Command, shell: Shell, out: &mut dyn Write) -> io::Result<()> {
    let (name, mut text) = (program.get_name().to_owned(), Vec::new());
    clap_complete::generate(shell, &mut program, name, &mut text); // it panics on a failed write
    out.write_all(&text)
}

/// Writes the man page of a program, or of one of its subcommands.
///
/// # Errors
/// An unknown subcommand; a closed `out`.
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
/// The folder is not writable.
pub fn man_pages(program: Command, folder: &Path) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    clap_mangen::generate_to(program, folder)
}
