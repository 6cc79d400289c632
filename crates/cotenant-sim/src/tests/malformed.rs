//! Malformed machines, programs and scenarios. What reads them may refuse any; whether what is taken also ends is for
//! [`super::endless`].

use super::endless::hostile;
use crate::app::parse_programs;
use crate::flat_machine;
use crate::scenario::Scenario;
use cotenant_model::testing::malformed;
use fastrand::Rng;

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap_or_default()
}

#[test]
fn malformed_input_is_survived() {
    let flat = "name = 'eight'\ncores = 8\nclock_ghz = 2.0\nllc_bytes = 20971520\nllc_ns = 25\nmemory_ns = 82\n\
                memory_gbs = 60\ninclusive = true\n";
    let programs = include_str!("../../../../workloads/services.toml");
    let scenarios: Vec<Vec<u8>> = (0..20).map(|seed| hostile(&mut Rng::with_seed(seed)).into_bytes()).collect();
    assert!(flat_machine::parse(flat).is_ok() && parse_programs(programs).is_ok());
    malformed::survives("flat machine", &[flat.into()], 1_000, |bytes| drop(flat_machine::parse(text(bytes))));
    malformed::survives("programs", &[programs.into()], 300, |bytes| drop(parse_programs(text(bytes))));
    malformed::survives("scenario", &scenarios, 1_000, |bytes| drop(Scenario::parse(text(bytes), super::machine)));
}
