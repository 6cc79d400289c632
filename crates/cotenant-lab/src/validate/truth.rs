//! Measurements: a CSV file with one row per program of a run.

use std::collections::BTreeMap;

/// Most rows of a file: rank comparison is quadratic.
const ROWS: usize = 20_000;
/// Most bytes of a name: unknown names are compared with all known ones.
const NAME: usize = 256;

/// A program in a run.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Member {
    /// Its name.
    pub(super) program: String,
    /// Time together over time alone, > 0; `None` for a co-runner without a measurement.
    pub(super) slowdown: Option<f64>,
}

/// Co-running programs.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Run {
    /// Its name in the file.
    pub(super) name: String,
    /// Its programs, in the order of the file.
    pub(super) members: Vec<Member>,
}

/// Positions of the columns.
struct Columns {
    run: usize,
    program: usize,
    measured: Measured,
    all: usize,
}

enum Measured {
    Slowdown(usize),
    Seconds { alone: usize, together: usize },
}

const HEADS: &str = "run, program, and either slowdown or alone_s and together_s";

/// Reads runs, in the order of their first rows.
///
/// # Errors
/// On errors: the line number, what is wrong, and the remedy.
pub(super) fn parse(text: &str) -> Result<Vec<Run>, String> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut lines = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
    let (at, head) =
        lines.next().ok_or("1: there is no row; the first line names the columns: run,program,slowdown")?;
    let columns = columns(head).map_err(|why| format!("{at}: {why}"))?;
    let (mut runs, mut places): (Vec<Run>, BTreeMap<&str, usize>) = (Vec::new(), BTreeMap::new());
    for (row, (at, line)) in lines.enumerate() {
        let member = |()| -> Result<(&str, Member), String> {
            if row == ROWS {
                return Err(format!("more than {ROWS} rows; split the file"));
            }
            let cells = cells(line, columns.all)?;
            let (run, program) = (cells[columns.run], cells[columns.program]);
            if run.is_empty() || program.is_empty() {
                return Err("run or program is empty; name both".to_owned());
            }
            if run.len().max(program.len()) > NAME {
                return Err(format!("a name is longer than {NAME} bytes; shorten it"));
            }
            Ok((run, Member { program: program.to_owned(), slowdown: columns.measured.slowdown(&cells)? }))
        };
        let (run, member) = member(()).map_err(|why| format!("{at}: {why}"))?;
        let place = *places.entry(run).or_insert_with(|| {
            runs.push(Run { name: run.to_owned(), members: Vec::new() });
            runs.len() - 1
        });
        runs[place].members.push(member);
    }
    if runs.is_empty() {
        return Err(format!("{at}: nothing follows the names of the columns; write one row per program of a run"));
    }
    Ok(runs)
}

fn cells(line: &str, columns: usize) -> Result<Vec<&str>, String> {
    if line.contains('"') {
        return Err("quotation marks are not read; leave them out, and use no comma in names".to_owned());
    }
    let cells: Vec<&str> = line.split(',').map(str::trim).collect();
    if cells.len() != columns {
        return Err(format!("{} columns, but the first line names {columns}; give each", cells.len()));
    }
    Ok(cells)
}

fn columns(head: &str) -> Result<Columns, String> {
    let heads: Vec<&str> = head.split(',').map(str::trim).collect();
    for (i, head) in heads.iter().enumerate() {
        if !["run", "program", "slowdown", "alone_s", "together_s"].contains(head) {
            return Err(format!("column '{head}' is not known; the first line names {HEADS}"));
        }
        if heads[..i].contains(head) {
            return Err(format!("column {head} comes twice; name it once"));
        }
    }
    let find = |name: &str| heads.iter().position(|head| *head == name);
    let missing = || format!("a column is missing; the first line names {HEADS}");
    let measured = match (find("slowdown"), find("alone_s"), find("together_s")) {
        (Some(at), None, None) => Measured::Slowdown(at),
        (None, Some(alone), Some(together)) => Measured::Seconds { alone, together },
        (Some(_), ..) => return Err("slowdown and seconds both; give one of them".to_owned()),
        _ => return Err(missing()),
    };
    let (run, program) = find("run").zip(find("program")).ok_or_else(missing)?;
    Ok(Columns { run, program, measured, all: heads.len() })
}

impl Measured {
    fn slowdown(&self, cells: &[&str]) -> Result<Option<f64>, String> {
        let slowdown = match *self {
            Self::Slowdown(at) => positive("slowdown", cells[at])?,
            Self::Seconds { alone, together } => {
                let (alone, together) = (positive("alone_s", cells[alone])?, positive("together_s", cells[together])?);
                alone.zip(together).map(|(alone, together)| together / alone)
            }
        };
        // The quotient of two valid numbers of seconds may still be invalid.
        if slowdown.is_some_and(|v| !(1e-3..=1e6).contains(&v)) {
            return Err(
                "the slowdown is not between 0.001 and 1,000,000; it is time together over time alone".to_owned()
            );
        }
        Ok(slowdown)
    }
}

/// A number above 0; `None` for an empty field.
fn positive(name: &str, cell: &str) -> Result<Option<f64>, String> {
    if cell.is_empty() {
        return Ok(None);
    }
    let number = cell.parse::<f64>().ok().filter(|v| v.is_finite() && *v > 0.0);
    number.map(Some).ok_or_else(|| format!("{name} is '{cell}'; it must be a number above 0, or empty if not measured"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(program: &str, slowdown: Option<f64>) -> Member {
        Member { program: program.to_owned(), slowdown }
    }

    #[test]
    fn rows_are_gathered_into_runs() {
        let text = "\u{feff}# a machine\r\nprogram,run,slowdown\r\nmcf06,1,1.5\r\nlbm06,2, 2\r\n\r\nmilc06,1,\r\n";
        let runs = parse(text).unwrap();
        assert_eq!((runs.len(), &*runs[0].name, &*runs[1].name), (2, "1", "2"));
        assert_eq!(runs[0].members, [member("mcf06", Some(1.5)), member("milc06", None)]);
        let seconds = parse("run,program,alone_s,together_s\na,mcf06,200,300\n").unwrap();
        assert_eq!(seconds[0].members, [member("mcf06", Some(1.5))]);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line_and_a_remedy() {
        let wrong = |text: &str| parse(text).unwrap_err();
        let after = |line: &str| wrong(&format!("run,program,slowdown\na,mcf06,1\n{line}"));
        assert!(wrong("").starts_with("1: there is no row; "));
        assert!(wrong("run,program,slowdown\n").starts_with("1: nothing follows "));
        assert!(wrong("# x\nrun,program\n").starts_with("2: a column is missing; the first line names run, "));
        assert!(wrong("run,run,program,slowdown\n").starts_with("1: column run comes twice"));
        assert!(wrong("run,program,slowdwon\n").starts_with("1: column 'slowdwon' is not known; "));
        assert!(wrong("run,program,slowdown,alone_s\n").starts_with("1: slowdown and seconds both"));
        for number in ["nan", "inf", "-1", "0", "1e999", "1,5x"] {
            let message = after(&format!("a,lbm06,{number}"));
            assert!(message.starts_with("3: "), "{message}");
        }
        assert_eq!(after("a,b,x"), "3: slowdown is 'x'; it must be a number above 0, or empty if not measured");
        assert!(after("a,b").starts_with("3: 2 columns, but the first line names 3"));
        assert!(after("a,\"b\",1").starts_with("3: quotation marks"));
        assert!(after(&format!("a,{},1", "b".repeat(NAME + 1))).starts_with("3: a name is longer than 256 bytes"));
        assert!(after("a,,1").starts_with("3: run or program is empty"));
        let tiny = wrong("run,program,alone_s,together_s\na,b,1e-300,1e300\n");
        assert!(tiny.starts_with("2: the slowdown is not between"), "{tiny}");
        assert!(after(&"a,b,1\n".repeat(ROWS)).ends_with("more than 20000 rows; split the file"));
    }
}
