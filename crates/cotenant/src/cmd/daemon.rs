//! `cotenant daemon`: manage the services of rules for weeks.

use anyhow::Result;
use cotenant_cli::messages::{count, tell};
use cotenant_cli::{print_page, table::Table};
use cotenant_daemon::log::Level;
use cotenant_daemon::{self as daemon, CheckedRule};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  cotenant daemon --check                            what each rule matches now
  cotenant daemon --config rules.toml --log debug    on this terminal, every decision shown
  systemctl reload cotenant                          read the configuration again (SIGHUP)";

/// Arguments of `cotenant daemon`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The configuration; files of the folder conf.d beside it are read, too [default: /etc/cotenant/cotenant.toml
    /// for root, else cotenant/cotenant.toml in the XDG configuration directory]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Only say whether the configuration is right, and what each rule matches now
    #[arg(long)]
    check: bool,
    /// With --check: run the commands of metrics (cmd:), too, to see whether they answer
    #[arg(long, requires = "check")]
    ask: bool,
    /// Begin where the metric of a service that runs is refused: its server comes later, or is about to get a password
    #[arg(long, conflicts_with = "check")]
    wait_for_metric: bool,
    /// How much is logged
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    log: Level,
    /// The control socket [default: control.sock in the state directory, /run/cotenant for root]
    #[arg(long, value_name = "PATH", hide_short_help = true)]
    socket: Option<PathBuf>,
}

/// Runs the subcommand.
///
/// # Errors
/// One line with the error, its place, and the remedy.
pub fn run(args: &Args) -> Result<ExitCode> {
    if args.check {
        return check(args);
    }
    daemon::run(args.config.as_deref(), args.socket.clone(), args.log, args.wait_for_metric)?;
    Ok(ExitCode::SUCCESS)
}

fn check(args: &Args) -> Result<ExitCode> {
    let checked = daemon::check(args.config.as_deref(), args.ask)?;
    checked.warnings.iter().for_each(|warning| tell(format_args!("warning: {warning}")));
    print_page(|out| {
        writeln!(out, "ok: {}", checked.summary)?;
        let mut table = Table::new(["rule", "class", "policy", ">services", "now"]);
        for CheckedRule { name, class, policy, services } in &checked.rules {
            let more = services.len().saturating_sub(NAMED);
            let shown = services.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
            let shown = if more > 0 { format!("{shown}, {} more", count(more as u64, "service")) } else { shown };
            table.row([&**name, class.name(), policy, &services.len().to_string(), &shown]);
        }
        out.table(&table)?;
        Ok(ExitCode::SUCCESS)
    })
}

/// Services of a rule that are listed.
const NAMED: usize = 8;
