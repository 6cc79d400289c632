//! What the phases of the demonstration say, in words.

use super::server::Served;
use cotenant_status::quantities::{digits, time};
use serde::Serialize;

/// A phase.
#[derive(Clone, Debug, Serialize)]
pub struct Phase {
    pub name: &'static str,
    /// How long it was measured, seconds.
    pub seconds: f64,
    #[serde(flatten)]
    pub server: Served,
    /// CPU time of the batch program per second that it was there; absent where there was none.
    pub batch_cpus: Option<f64>,
}

/// All of them.
#[derive(Clone, Debug)]
pub struct Phases {
    pub alone: Phase,
    pub together: Phase,
    pub nice: Phase,
    pub qos: Phase,
}

impl Phases {
    /// In the order in which they were measured.
    pub fn all(&self) -> [&Phase; 4] {
        [&self.alone, &self.together, &self.nice, &self.qos]
    }
}

/// How a p99 differs from another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    Longer,
    Shorter,
    /// Their 95 % intervals meet: no difference that these phases can show.
    None,
}

impl Change {
    fn of(p99: &Phase, before: &Phase) -> Self {
        let ([low, high], [before_low, before_high]) = (p99.server.p99_interval_s, before.server.p99_interval_s);
        match () {
            () if low > before_high => Self::Longer,
            () if high < before_low => Self::Shorter,
            () => Self::None,
        }
    }
}

/// What follows from the figures.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// The server beside the batch program, against the server alone.
    pub harm: Change,
    /// `nice 19` and `cotenant qos`, each against both side by side.
    pub nice: Change,
    pub qos: Change,
    /// Whether `qos` mended harm that was there.
    pub gained: bool,
    /// The same for people.
    pub text: Vec<String>,
}

/// An interval of a p99 that is wider than by this factor says more of the machine than of its programs.
const UNSTEADY: f64 = 2.0;
/// A shorter phase than this is mostly what `qos` takes to learn, seconds.
const LEARNS_S: f64 = 20.0;
/// Shares of CPU time that differ by less are the same here; so little is next to none.
const SAME: f64 = 0.05;

/// Judges. `threads`: of the batch program; `notes`: what `qos` says of its run.
pub fn judge(phases: &Phases, threads: usize, notes: &[String]) -> Verdict {
    let Phases { alone, together, nice, qos } = phases;
    let verdict = Verdict {
        harm: Change::of(together, alone),
        nice: Change::of(nice, together),
        qos: Change::of(qos, together),
        gained: false,
        text: Vec::new(),
    };
    let harmed = verdict.harm == Change::Longer;
    let beside = || unsteady("Beside the batch program it", together);
    let undecided = unsteady("Alone it", alone).or_else(beside).filter(|_| verdict.harm == Change::None);
    let mut text = vec![if harmed {
        format!("Beside the batch program the server's p99 is {}.", against(together, alone))
    } else if let Some(why) = undecided {
        format!("Not decided: the server's p99 is {} alone and {} side by side. {why}", p99(alone), p99(together))
    } else {
        let than = ["no longer", "shorter"][usize::from(verdict.harm == Change::Shorter)];
        format!(
            "Nothing to gain here: beside the batch program the server's p99 ({}) is {than} than alone ({}), as far as \
             these phases can tell. {}",
            p99(together),
            p99(alone),
            why_no_harm(together, threads)
        )
    }];
    text.push(match verdict.nice {
        Change::Shorter if Change::of(nice, alone) == Change::Longer => {
            format!("nice 19 helps in part: {}.", against(nice, alone))
        }
        Change::Shorter if harmed => format!("nice 19 is enough: p99 {}.", p99(nice)),
        Change::Shorter => format!("With nice 19 it is shorter: p99 {}.", p99(nice)),
        Change::None if harmed => format!("nice 19 does not help: p99 {}.", p99(nice)),
        Change::None => format!("nice 19 changes nothing that shows: p99 {}.", p99(nice)),
        Change::Longer if harmed => format!("With nice 19 it is even longer: p99 {}.", p99(nice)),
        Change::Longer => format!("With nice 19 it is longer: p99 {}.", p99(nice)),
    });
    let [cpus, before] = [qos, together].map(|phase| phase.batch_cpus.unwrap_or_default());
    let price = format!("The batch program gets {} CPUs under it, {} beside the server.", digits(cpus), digits(before));
    match verdict.qos {
        Change::Shorter if harmed => {
            let still = match Change::of(qos, alone) {
                Change::Longer => against(qos, alone),
                _ => format!("p99 {}, as alone as far as these phases can tell", p99(qos)),
            };
            text.push(format!("cotenant qos helps: {still}. {price}"));
            if cpus < SAME * before {
                text.push(
                    "That is next to nothing: here the server is quick only if the batch program waits.".to_owned(),
                );
            }
            text.extend(better_nice(phases));
        }
        Change::Longer => text.push(format!("cotenant qos did harm here: p99 {}. {price}", p99(qos))),
        _ if harmed => {
            text.push(format!(
                "cotenant qos did not help here, as far as these phases can tell: p99 {}. {price} {}",
                p99(qos),
                why_no_help(qos, notes)
            ));
        }
        _ => text.push(format!("Under cotenant qos the p99 is {}. {price}", p99(qos))),
    }
    Verdict { gained: harmed && verdict.qos == Change::Shorter, text, ..verdict }
}

fn p99(phase: &Phase) -> String {
    time(phase.server.p99_s)
}

/// `86.2 times as long as alone: 25.0 ms, not 290 µs`.
fn against(phase: &Phase, alone: &Phase) -> String {
    let times = digits(phase.server.p99_s / alone.server.p99_s);
    format!("{times} times as long as alone: {}, not {}", p99(phase), p99(alone))
}

fn why_no_harm(together: &Phase, threads: usize) -> String {
    let cpus = together.batch_cpus.unwrap_or_default();
    if cpus < threads as f64 / 2.0 {
        return format!(
            "The batch program got only {} of {threads} CPUs: other programs, or a quota, kept it from doing harm.",
            digits(cpus)
        );
    }
    "Linux lets this server run as soon as it is asked, and what it needs stays in its caches. A server with more threads \
     or more memory may suffer all the same: try yours."
        .to_owned()
}

fn unsteady(what: &str, phase: &Phase) -> Option<String> {
    let [low, high] = phase.server.p99_interval_s;
    (high > low * UNSTEADY).then(|| {
        let [low, high] = [low, high].map(time);
        format!(
            "{what} is unsteady (95 %: {low} to {high}), so something else disturbs this machine: try again when it is \
             quiet, or for longer (--seconds 180)."
        )
    })
}

fn why_no_help(qos: &Phase, notes: &[String]) -> String {
    let short = (qos.seconds < LEARNS_S).then(|| {
        format!("It had {} s, and takes about {LEARNS_S} s to learn: try --seconds 60 or more.", digits(qos.seconds))
    });
    let said: Vec<String> = notes.iter().map(|note| format!("It says: {note}.")).collect();
    let missing = || "cotenant doctor says which means to throttle are missing here.".to_owned();
    let said = || (!said.is_empty()).then(|| said.join(" "));
    short.or_else(|| unsteady("It", qos)).or_else(said).unwrap_or_else(missing)
}

/// What is simpler and does as well is said, too.
fn better_nice(Phases { together, nice, qos, .. }: &Phases) -> Option<String> {
    let [with_nice, with_qos] = [nice, qos].map(|phase| phase.batch_cpus.unwrap_or_default());
    // Of a phase that scatters nobody knows how well it does.
    let is_known = unsteady("It", qos).is_none();
    let as_good = is_known && Change::of(nice, together) == Change::Shorter && Change::of(qos, nice) != Change::Shorter;
    (as_good && with_nice >= with_qos * (1.0 - SAME))
        .then(|| format!("Here nice 19 does as well, and the batch program gets {} CPUs: use that.", digits(with_nice)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A p99 in milliseconds with its interval, and the CPUs of the batch program.
    fn phase(p99: f64, [low, high]: [f64; 2], batch_cpus: f64) -> Phase {
        let [p99_s, low, high] = [p99, low, high].map(|ms| ms / 1e3);
        let server = Served { answers: 10_000, p50_s: 1e-4, p99_s, p99_interval_s: [low, high] };
        Phase { name: "", seconds: 30.0, server, batch_cpus: (batch_cpus > 0.0).then_some(batch_cpus) }
    }

    /// The case that a newcomer is to see.
    fn harmed() -> Phases {
        Phases {
            alone: phase(0.29, [0.28, 0.31], 0.0),
            together: phase(25.0, [23.0, 27.0], 1.9),
            nice: phase(9.0, [8.0, 10.0], 1.8),
            qos: phase(0.3, [0.29, 0.33], 1.5),
        }
    }

    fn told(phases: &Phases) -> (Verdict, String) {
        let verdict = judge(phases, 2, &[]);
        let text = verdict.text.join("\n");
        (verdict, text)
    }

    #[test]
    fn harm_that_is_mended() {
        let (verdict, text) = told(&harmed());
        assert_eq!((verdict.harm, verdict.nice, verdict.qos), (Change::Longer, Change::Shorter, Change::Shorter));
        assert!(verdict.gained);
        // 25 / 0.29 = 86.2, 9 / 0.29 = 31.0.
        assert_eq!(
            text,
            "Beside the batch program the server's p99 is 86.2 times as long as alone: 25.0 ms, not 290 µs.\n\
             nice 19 helps in part: 31.0 times as long as alone: 9.00 ms, not 290 µs.\n\
             cotenant qos helps: p99 300 µs, as alone as far as these phases can tell. The batch program gets 1.50 CPUs \
             under it, 1.90 beside the server."
        );
    }

    #[test]
    fn nothing_gained_is_said_with_a_reason() {
        // The intervals meet at 0.31.
        let calm = |alone: Phase, cpus: f64| Phases {
            alone,
            together: phase(0.32, [0.3, 0.34], cpus),
            nice: phase(0.31, [0.3, 0.33], cpus),
            qos: phase(0.3, [0.29, 0.32], 1.5),
        };
        let (verdict, text) = told(&calm(phase(0.29, [0.28, 0.31], 0.0), 1.9));
        assert_eq!((verdict.harm, verdict.qos, verdict.gained), (Change::None, Change::None, false));
        assert!(text.starts_with("Nothing to gain here: beside the batch program the server's p99 (320 µs) is no longer than alone (290 µs)"), "{text}");
        assert!(text.contains("stays in its caches") && text.contains("nice 19 changes nothing that shows"), "{text}");
        assert!(text.contains("Under cotenant qos the p99 is 300 µs. The batch program gets 1.50 CPUs"), "{text}");
        // 0.7 is more than twice 0.28.
        let (_, unsteady) = told(&calm(phase(0.29, [0.28, 0.7], 0.0), 1.9));
        assert!(
            unsteady.starts_with("Not decided: the server's p99 is 290 µs alone and 320 µs side by side."),
            "{unsteady}"
        );
        assert!(unsteady.contains("Alone it is unsteady (95 %: 280 µs to 700 µs)"), "{unsteady}");
        let anything = Phases { together: phase(20.0, [0.3, 50.0], 1.9), ..calm(phase(0.29, [0.28, 0.31], 0.0), 1.9) };
        let (_, anything) = told(&anything);
        assert!(anything.contains("Beside the batch program it is unsteady (95 %: 300 µs to 50.0 ms)"), "{anything}");
        assert!(!anything.contains("Nothing to gain"), "{anything}");
        let (_, starved) = told(&calm(phase(0.29, [0.28, 0.31], 0.0), 0.9));
        assert!(starved.contains("got only 0.900 of 2 CPUs"), "{starved}");
        // CPUs that never idle wake sooner.
        let (verdict, quicker) = told(&calm(phase(0.5, [0.45, 0.55], 0.0), 1.9));
        assert_eq!((verdict.harm, verdict.gained), (Change::Shorter, false));
        assert!(quicker.contains("(320 µs) is shorter than alone (500 µs)"), "{quicker}");
        let nicer = Phases { nice: phase(0.2, [0.19, 0.21], 1.8), ..calm(phase(0.29, [0.28, 0.31], 0.0), 1.9) };
        assert!(told(&nicer).1.contains("With nice 19 it is shorter: p99 200 µs."));
    }

    #[test]
    fn qos_that_does_not_help_says_so() {
        let idle = Phases { qos: phase(26.0, [22.0, 29.0], 1.9), ..harmed() };
        let (verdict, text) = told(&idle);
        assert_eq!((verdict.qos, verdict.gained), (Change::None, false));
        assert!(text.contains("did not help here, as far as these phases can tell: p99 26.0 ms."), "{text}");
        assert!(text.ends_with("are missing here."), "{text}");
        // From 6 to 98 ms: that may be anything.
        let unsteady = Phases { qos: phase(10.0, [6.0, 98.0], 0.2), ..harmed() };
        let (verdict, text) = told(&unsteady);
        assert_eq!((verdict.qos, verdict.gained), (Change::None, false));
        assert!(text.contains("It is unsteady (95 %: 6.00 ms to 98.0 ms), so something else disturbs"), "{text}");
        let noted = judge(&idle, 2, &["no freezer".to_owned()]).text.join(" ");
        assert!(noted.ends_with("It says: no freezer."), "{noted}");
        let short = Phases { qos: Phase { seconds: 3.0, ..idle.qos.clone() }, ..idle };
        assert!(told(&short).1.ends_with("It had 3.00 s, and takes about 20 s to learn: try --seconds 60 or more."));
        let worse = Phases { qos: phase(40.0, [38.0, 42.0], 1.9), ..harmed() };
        let (verdict, text) = told(&worse);
        assert_eq!((verdict.qos, verdict.gained), (Change::Longer, false));
        assert!(text.contains("cotenant qos did harm here: p99 40.0 ms."), "{text}");
    }

    #[test]
    fn the_price_and_what_is_simpler_are_said() {
        let dear = Phases { qos: phase(0.3, [0.29, 0.33], 0.05), ..harmed() };
        assert!(told(&dear).1.ends_with("if the batch program waits."));
        let simple = Phases { nice: phase(0.31, [0.3, 0.32], 1.8), ..harmed() };
        let (_, text) = told(&simple);
        assert!(text.contains("nice 19 is enough: p99 310 µs."), "{text}");
        assert!(text.ends_with("Here nice 19 does as well, and the batch program gets 1.80 CPUs: use that."), "{text}");
        // Still longer than alone, if far shorter than before.
        let part = Phases { qos: phase(0.58, [0.5, 0.6], 1.5), ..harmed() };
        assert!(told(&part).1.contains("cotenant qos helps: 2.00 times as long as alone: 580 µs, not 290 µs."));
        let unsteady = Phases { qos: phase(0.37, [0.19, 6.0], 1.5), ..simple.clone() };
        assert!(!told(&unsteady).1.contains("does as well"), "{}", told(&unsteady).1);
        let useless = Phases { nice: phase(24.0, [22.0, 26.0], 1.8), ..harmed() };
        assert!(told(&useless).1.contains("nice 19 does not help: p99 24.0 ms."));
        let harmful = Phases { nice: phase(50.0, [48.0, 52.0], 1.8), ..harmed() };
        assert!(told(&harmful).1.contains("With nice 19 it is even longer: p99 50.0 ms."));
    }
}
