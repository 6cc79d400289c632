//! Changed figures of the simulator, for experiments on whether a result depends on one of them.

use crate::app::Program;
use crate::machine::SimMachine;
use cotenant_model::machine::Machine;
use toml::{Table, Value};

/// A machine with changed figures in its `[simulator]` section. A change is `KEY=VALUE`, as in the file, or
/// `KEY=xFACTOR`: a multiple of the file's value, or of the guess where it has none.
///
/// # Errors
/// If a change cannot be read, or multiplies something without a number. [`SimMachine::new`] reports unknown keys and
/// impossible values.
pub fn changed(mut machine: Machine, changes: &[String]) -> Result<Machine, String> {
    for change in changes {
        let (key, value) = change.split_once('=').ok_or_else(|| format!("{change}: expected KEY=VALUE"))?;
        let (key, value) = (key.trim(), value.trim());
        let mut file: Table = toml::from_str(machine.simulator.as_deref().unwrap_or_default())
            .map_err(|why| format!("the machine's file: {}", why.message()))?;
        let section = file.entry("simulator").or_insert_with(|| Value::Table(Table::new()));
        let section = section.as_table_mut().ok_or("[simulator] is not a table")?;
        let value = match value.strip_prefix('x').and_then(|factor| factor.parse::<f64>().ok()) {
            Some(factor) => {
                let guess = || -> Option<Value> {
                    let guesses = SimMachine::new(&machine).ok()?.guesses;
                    guesses.iter().find_map(|guess| toml::from_str::<Table>(guess).ok()?.remove(key))
                };
                let before = section.get(key).cloned().or_else(guess);
                before
                    .and_then(|before| times(&before, factor))
                    .ok_or_else(|| format!("{change}: {key} is not a number"))?
            }
            None => toml::from_str::<Table>(&format!("v = {value}"))
                .ok()
                .and_then(|mut table| table.remove("v"))
                .unwrap_or_else(|| Value::String(value.to_owned())),
        };
        section.insert(key.to_owned(), value);
        machine.simulator = Some(file.to_string());
    }
    Ok(machine)
}

/// A multiple of a number, or of each number of a list.
fn times(value: &Value, factor: f64) -> Option<Value> {
    match value {
        Value::Integer(n) => Some(Value::Float(*n as f64 * factor)),
        Value::Float(x) => Some(Value::Float(x * factor)),
        Value::Array(all) => all.iter().map(|value| times(value, factor)).collect::<Option<_>>().map(Value::Array),
        _ => None,
    }
}

impl Program {
    /// A program whose threads alternate between phases of `instructions`, one with 1.5 times and one with half of its
    /// LLC accesses and transfers.
    #[must_use]
    pub fn alternating(&self, instructions: f64) -> Self {
        let all: f64 = self.phases.iter().filter_map(|phase| phase.instructions).sum();
        let mut turn = self.clone();
        for phase in &mut turn.phases {
            phase.instructions = Some(phase.instructions.map_or(instructions, |own| instructions * own / all));
        }
        let part = |by: f64| turn.clone().scaled("llc_apki", by).scaled("coherence_pki", by).phases;
        let phases = [part(1.5), part(0.5)].concat();
        Self { phases, ..turn }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::known;
    use crate::occupancy::Replacement;

    const TEXT: &str = "name = 'm'\ndescription = 'd'\nsource = 's'\nclock_hz = 1e9\n\
                        topology = { synthetic = 'package:2 [numa] l3:1(size=8MiB) core:2 pu:2' }\n\
                        [simulator]\nmemory_ns = 100\ncoherence_ns = [30, 90, 140]\n";

    fn changed(changes: &[&str]) -> Result<SimMachine, String> {
        let changes: Vec<String> = changes.iter().map(|change| (*change).to_owned()).collect();
        let machine = super::changed(Machine::parse(TEXT).unwrap(), &changes)?;
        SimMachine::new(&machine).map_err(|why| why.to_string())
    }

    #[test]
    fn figures_are_replaced_and_multiplied() {
        let usual = changed(&[]).unwrap();
        assert_eq!((usual.smt, usual.replacement), (0.6, Replacement::Random));
        let other = changed(&["smt=0.8", "replacement=lru", "memory_ns=x1.3", "coherence_ns=x2", "llc_ns = x0.5"]);
        let other = other.unwrap();
        assert_eq!((other.smt, other.replacement), (0.8, Replacement::Lru));
        assert!((other.memory_s[0][0] - 130e-9).abs() < 1e-15 && (other.llc_s - usual.llc_s / 2.0).abs() < 1e-15);
        assert_eq!(other.coherence_s.map(|s| (s * 1e9).round()), [60.0, 180.0, 280.0]);
        assert_eq!(other.topology, usual.topology);
        for (wrong, says) in [("smt", "KEY=VALUE"), ("nosuch=x2", "nosuch is not a number"), ("nosuch=1", "nosuch")] {
            let why = changed(&[wrong]).unwrap_err();
            assert!(why.contains(says), "{wrong}: {why}");
        }
    }

    #[test]
    fn who_alternates_does_the_same_on_average() {
        for name in ["mcf06", "tunkrank"] {
            let own = known(name).unwrap();
            let turns = own.alternating(1e9);
            let sum = |of: &dyn Fn(&crate::app::Phase) -> f64, program: &Program| -> f64 {
                let weight = |phase: &crate::app::Phase| phase.instructions.unwrap_or(1.0);
                let all: f64 = program.phases.iter().map(weight).sum();
                program.phases.iter().map(|phase| of(phase) * weight(phase)).sum::<f64>() / all
            };
            assert_eq!(turns.phases.len(), 2 * own.phases.len());
            let whole: f64 = turns.phases.iter().filter_map(|phase| phase.instructions).sum();
            assert!((whole - 2e9).abs() < 1.0, "{whole}");
            for of in [|p: &crate::app::Phase| p.llc_apki, |p: &crate::app::Phase| p.coherence_pki] {
                assert!((sum(&of, &turns) - sum(&of, own)).abs() < 1e-9, "{name}");
            }
        }
    }
}
