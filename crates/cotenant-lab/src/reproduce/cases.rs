//! The runs of SAM's evaluation: Table 1's applications and Table 2's mixes.

/// An application of a case.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct App {
    /// The paper's name.
    pub name: String,
    /// Its threads.
    pub threads: usize,
}

/// Programs that run at the same time.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    /// For people: `SGD (10t)`, `mix 9`.
    pub label: String,
    /// Mix number in Table 2; 0 for an application alone.
    pub mix: usize,
    /// The applications.
    pub apps: Vec<App>,
    /// Moves that Table 1 counts for it: for coherence, for remote memory.
    pub moves: Option<[f64; 2]>,
}

impl App {
    /// The name in `workloads/` of the paper's program.
    pub fn program(&self) -> String {
        match self.name.as_str() {
            "libq" => "libquantum06".to_owned(),
            "ALS small" => "als-small".to_owned(),
            spec if "bzip2 sjeng omnetpp soplex gobmk hmmer mcf milc h264ref".split(' ').any(|s| s == spec) => {
                format!("{spec}06")
            }
            other => other.to_lowercase(),
        }
    }

    /// As Table 1 writes it.
    pub fn label(&self) -> String {
        format!("{} ({}t)", self.name, self.threads)
    }
}

/// The cells of each line of a table, without remarks and heads.
fn lines(text: &str) -> impl Iterator<Item = Vec<&str>> {
    text.lines().filter(|line| !line.starts_with('#')).skip(1).map(|line| line.split(',').collect())
}

fn number(cell: &str) -> usize {
    cell.parse().unwrap_or_default()
}

/// The applications of Table 1, each alone.
pub(crate) fn standalone() -> Vec<Case> {
    let case = |cells: Vec<&str>| {
        let app = App { name: cells[0].to_owned(), threads: number(cells[1]) };
        let moves = [number(cells[2]) as f64, number(cells[3]) as f64];
        Case { label: app.label(), mix: 0, apps: vec![app], moves: Some(moves) }
    };
    lines(include_str!("applications.csv")).map(case).collect()
}

/// The mixes of Table 2.
pub(crate) fn mixes() -> Vec<Case> {
    let mut all: Vec<Case> = Vec::new();
    for cells in lines(include_str!("mixes.csv")) {
        let mix = number(cells[0]);
        let app = App { name: cells[1].to_owned(), threads: number(cells[2]) };
        match all.last_mut().filter(|case| case.mix == mix) {
            Some(case) => case.apps.push(app),
            None => all.push(Case { label: format!("mix {mix}"), mix, apps: vec![app], moves: None }),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use cotenant_sim::app::embedded;

    /// Holds sim/reproduce.
    #[test]
    fn every_application_of_the_tables_has_a_program_and_fits() {
        let (alone, mixes) = (standalone(), mixes());
        assert_eq!((alone.len(), mixes.len()), (23, 26));
        for case in alone.iter().chain(&mixes) {
            let threads: usize = case.apps.iter().map(|a| a.threads).sum();
            assert!((1..=40).contains(&threads), "{}", case.label);
            for app in &case.apps {
                assert!(app.threads > 0 && embedded().contains_key(&app.program()), "{}: {}", case.label, app.name);
            }
        }
        assert!((1..).zip(&mixes).all(|(n, case)| case.mix == n));
    }
}
