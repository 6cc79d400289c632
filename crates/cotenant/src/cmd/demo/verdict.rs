//! The results of the demonstration in words.

use super::server::Served;
use cotenant_model::usage::Seen;
use cotenant_status::quantities::{digits, time};
use serde::Serialize;
use serde_json::Value;

/// A phase.
#[derive(Clone, Debug, Serialize)]
pub struct Phase {
    pub name: &'static str,
    /// Duration of the measurement, seconds.
    pub seconds: f64,
    #[serde(flatten)]
    pub server: Served,
    /// CPU time of the batch program per second of its run; absent without one.
    pub batch_cpus: Option<f64>,
}

/// All of them.
#[derive(Clone, Debug)]
pub struct Phases {
    pub alone: Phase,
    pub together: Phase,
    pub nice: Phase,
    pub background: Phase,
    pub qos: Phase,
}

/// Further facts about the phases.
#[derive(Clone, Debug, Default)]
pub struct Said {
    /// The means that put the batch program into the background, and the line for doing that with another program.
    pub by_hand: String,
    pub advice: &'static str,
    /// Why nice 19 has no effect, if so.
    pub no_effect: Option<String>,
    /// Other use of this machine.
    pub seen: Seen,
    /// The output of `cotenant qos --json`.
    pub qos: Value,
}

impl Said {
    fn notes(&self) -> impl Iterator<Item = &str> {
        self.qos["notes"].as_array().into_iter().flatten().filter_map(Value::as_str)
    }

    /// The judgement of `cotenant qos` on its goal.
    fn kept(&self) -> Option<&str> {
        self.qos["high"][0]["judgement"].as_str()
    }
}

impl Phases {
    /// In the order of measurement.
    pub fn all(&self) -> [&Phase; 5] {
        [&self.alone, &self.together, &self.nice, &self.background, &self.qos]
    }
}

/// The difference between two p99.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    Longer,
    Shorter,
    /// Their 95 % intervals overlap: these phases show no difference.
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

/// The conclusion from the figures.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// The server with the batch program, compared with the server alone.
    pub harm: Change,
    /// `nice 19`, the background by hand and `cotenant qos`, each compared with both without them.
    pub nice: Change,
    pub background: Change,
    pub qos: Change,
    /// Whether `qos` reduced an existing harm.
    pub gained: bool,
    /// An equally good simpler line to use instead; null without one.
    pub take: Option<&'static str>,
    /// Why there is no verdict; null if there is one.
    pub busy: Option<String>,
    /// The same in words.
    pub text: Vec<String>,
}

/// CPUs that the server uses: [`super::server::PER_S`] answers of some hundred microseconds.
const SERVER_CPUS: f64 = 0.2;
/// A p99 with an interval wider than this factor depends more on the machine than on its programs.
const UNSTEADY: f64 = 2.0;
/// A shorter phase is mostly the learning of `qos`, seconds.
const LEARNS_S: f64 = 20.0;
/// Smaller differences in the share of CPU time count as none; such a share counts as almost none.
const SAME: f64 = 0.05;

/// Draws the conclusions. `threads`: of the batch program.
pub fn judge(phases: &Phases, threads: usize, said: &Said) -> Verdict {
    let Phases { alone, together, nice, background, qos } = phases;
    let mut verdict = Verdict {
        harm: Change::of(together, alone),
        nice: Change::of(nice, together),
        background: Change::of(background, together),
        qos: Change::of(qos, together),
        gained: false,
        take: None,
        busy: said.seen.busy(SERVER_CPUS + 1.0),
        text: Vec::new(),
    };
    if let Some(busy) = &verdict.busy {
        let [alone, qos] = [alone, qos].map(p99);
        verdict.text = vec![
            format!("not judged: {busy}."),
            format!(
                "The figures are those of a machine that others used: p99 {alone} alone, {qos} under cotenant qos."
            ),
            "Try again when it is quiet.".to_owned(),
        ];
        return verdict;
    }
    let harmed = verdict.harm == Change::Longer;
    let beside = || unsteady("Beside the batch program it", together);
    let undecided = unsteady("Alone it", alone).or_else(beside).filter(|_| verdict.harm == Change::None);
    let harm = if harmed {
        format!("Beside the batch program the server's p99 is {}.", against(together, alone))
    } else if let Some(why) = undecided {
        format!("not judged: the server's p99 is {} alone and {} side by side. {why}", p99(alone), p99(together))
    } else {
        let than = ["no longer", "shorter"][usize::from(verdict.harm == Change::Shorter)];
        format!(
            "Nothing to gain here: beside the batch program the server's p99 ({}) is {than} than alone ({}), as far as \
             these phases can tell. {}",
            p99(together),
            p99(alone),
            why_no_harm(together, threads)
        )
    };
    let nice_19 = by_itself("nice 19", nice, phases, harmed);
    let no_effect = said.no_effect.as_ref().filter(|_| verdict.nice != Change::Shorter);
    let nice_19 = no_effect.map_or(nice_19.clone(), |why| format!("{nice_19} {}.", capital(why)));
    let by_hand = by_itself(&format!("The background by hand ({})", said.by_hand), background, phases, harmed);
    let by_hand = format!("{by_hand} The batch program gets {} CPUs in it.", digits(cpus(background)));
    let price = format!(
        "The batch program gets {} CPUs under it, {} beside the server.",
        digits(cpus(qos)),
        digits(cpus(together))
    );
    let under_qos = match verdict.qos {
        Change::Shorter if harmed => {
            let still = match Change::of(qos, alone) {
                Change::Longer => against(qos, alone),
                _ => format!("p99 {}, as alone as far as these phases can tell", p99(qos)),
            };
            let cost = if cpus(qos) < SAME * cpus(together) {
                " That is next to nothing: here the server is quick only if the batch program waits."
            } else {
                ""
            };
            format!("cotenant qos helps: {still}. {price}{cost}")
        }
        Change::Longer => format!("cotenant qos did harm here: p99 {}. {price}", p99(qos)),
        _ if harmed => format!(
            "cotenant qos did not help here, as far as these phases can tell: p99 {}. {price} {}",
            p99(qos),
            why_no_help(qos, said)
        ),
        _ => format!("Under cotenant qos the p99 is {}. {price}", p99(qos)),
    };
    verdict.gained = harmed && verdict.qos == Change::Shorter;
    verdict.take = [(nice, "nice -n 19 CMD"), (background, said.advice)]
        .into_iter()
        .find(|(simple, _)| harmed && does_as_well(simple, phases))
        .map(|(_, line)| line);
    let kept = said.kept().map(|kept| format!("cotenant qos: {kept}."));
    let take = verdict.take.map(|line| format!("Take the one line: {line}. It does as well here as cotenant qos."));
    verdict.text.extend(take.into_iter().chain(kept).chain([harm, nice_19, by_hand, under_qos]));
    verdict
}

fn cpus(phase: &Phase) -> f64 {
    phase.batch_cpus.unwrap_or_default()
}

/// The result of a simple policy.
fn by_itself(what: &str, phase: &Phase, Phases { alone, together, .. }: &Phases, harmed: bool) -> String {
    match Change::of(phase, together) {
        Change::Shorter if Change::of(phase, alone) == Change::Longer => {
            format!("{what} helps in part: {}.", against(phase, alone))
        }
        Change::Shorter if harmed => format!("{what} is enough: p99 {}.", p99(phase)),
        Change::Shorter => format!("{what} makes it shorter: p99 {}.", p99(phase)),
        Change::None if harmed => format!("{what} does not help: p99 {}.", p99(phase)),
        Change::None => format!("{what} changes nothing that shows: p99 {}.", p99(phase)),
        Change::Longer if harmed => format!("{what} makes it even longer: p99 {}.", p99(phase)),
        Change::Longer => format!("{what} makes it longer: p99 {}.", p99(phase)),
    }
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
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

fn why_no_help(qos: &Phase, said: &Said) -> String {
    let short = (qos.seconds < LEARNS_S).then(|| {
        format!("It had {} s, and takes about {LEARNS_S} s to learn: try --seconds 60 or more.", digits(qos.seconds))
    });
    let notes: Vec<String> = said.notes().map(|note| format!("It says: {note}.")).collect();
    let missing = || "cotenant doctor says which means to throttle are missing here.".to_owned();
    let notes = || (!notes.is_empty()).then(|| notes.join(" "));
    short.or_else(|| unsteady("It", qos)).or_else(notes).unwrap_or_else(missing)
}

/// An equally good simpler means is mentioned, too.
fn does_as_well(simple: &Phase, Phases { together, qos, .. }: &Phases) -> bool {
    // The result of an unsteady phase is unknown.
    let is_known = [qos, simple].into_iter().all(|phase| unsteady("It", phase).is_none());
    let as_good =
        is_known && Change::of(simple, together) == Change::Shorter && Change::of(qos, simple) != Change::Shorter;
    as_good && cpus(simple) >= cpus(qos) * (1.0 - SAME)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cotenant_model::usage::Usage;

    /// A p99 in milliseconds with its interval, and the CPUs of the batch program.
    fn phase(p99: f64, [low, high]: [f64; 2], batch_cpus: f64) -> Phase {
        let [p99_s, low, high] = [p99, low, high].map(|ms| ms / 1e3);
        let server = Served { answers: 10_000, p50_s: 1e-4, p99_s, p99_interval_s: [low, high] };
        Phase { name: "", seconds: 30.0, server, batch_cpus: (batch_cpus > 0.0).then_some(batch_cpus) }
    }

    /// The case to demonstrate.
    fn harmed() -> Phases {
        Phases {
            alone: phase(0.29, [0.28, 0.31], 0.0),
            together: phase(25.0, [23.0, 27.0], 1.9),
            nice: phase(9.0, [8.0, 10.0], 1.8),
            background: phase(0.6, [0.5, 0.7], 1.7),
            qos: phase(0.3, [0.29, 0.33], 1.5),
        }
    }

    fn said() -> Said {
        let by_hand = "cpu.idle 1 of a control group".to_owned();
        Said { by_hand, advice: "systemd-run -p CPUWeight=idle CMD", ..Said::default() }
    }

    fn told(phases: &Phases) -> (Verdict, String) {
        let verdict = judge(phases, 2, &said());
        let text = verdict.text.join("\n");
        (verdict, text)
    }

    /// Promise run/demo: `demo` judges by 95 % intervals of the p99, says why where nothing is gained, and leaves
    /// nothing behind however it ends.
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
             The background by hand (cpu.idle 1 of a control group) helps in part: 2.07 times as long as alone: 600 µs, \
             not 290 µs. The batch program gets 1.70 CPUs in it.\n\
             cotenant qos helps: p99 300 µs, as alone as far as these phases can tell. The batch program gets 1.50 CPUs \
             under it, 1.90 beside the server."
        );
    }

    /// Holds run/demo.
    #[test]
    fn nothing_gained_is_said_with_a_reason() {
        // The intervals touch at 0.31.
        let calm = |alone: Phase, cpus: f64| Phases {
            alone,
            together: phase(0.32, [0.3, 0.34], cpus),
            nice: phase(0.31, [0.3, 0.33], cpus),
            background: phase(0.3, [0.29, 0.33], cpus),
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
            unsteady.starts_with("not judged: the server's p99 is 290 µs alone and 320 µs side by side."),
            "{unsteady}"
        );
        assert!(unsteady.contains("Alone it is unsteady (95 %: 280 µs to 700 µs)"), "{unsteady}");
        let anything = Phases { together: phase(20.0, [0.3, 50.0], 1.9), ..calm(phase(0.29, [0.28, 0.31], 0.0), 1.9) };
        let (_, anything) = told(&anything);
        assert!(anything.contains("Beside the batch program it is unsteady (95 %: 300 µs to 50.0 ms)"), "{anything}");
        assert!(!anything.contains("Nothing to gain"), "{anything}");
        let (_, starved) = told(&calm(phase(0.29, [0.28, 0.31], 0.0), 0.9));
        assert!(starved.contains("got only 0.900 of 2 CPUs"), "{starved}");
        // CPUs that never idle wake faster.
        let (verdict, quicker) = told(&calm(phase(0.5, [0.45, 0.55], 0.0), 1.9));
        assert_eq!((verdict.harm, verdict.gained), (Change::Shorter, false));
        assert!(quicker.contains("(320 µs) is shorter than alone (500 µs)"), "{quicker}");
        let nicer = Phases { nice: phase(0.2, [0.19, 0.21], 1.8), ..calm(phase(0.29, [0.28, 0.31], 0.0), 1.9) };
        assert!(told(&nicer).1.contains("nice 19 makes it shorter: p99 200 µs."));
    }

    /// Holds run/demo.
    #[test]
    fn qos_that_does_not_help_says_so() {
        let idle = Phases { qos: phase(26.0, [22.0, 29.0], 1.9), ..harmed() };
        let (verdict, text) = told(&idle);
        assert_eq!((verdict.qos, verdict.gained), (Change::None, false));
        assert!(text.contains("did not help here, as far as these phases can tell: p99 26.0 ms."), "{text}");
        assert!(text.ends_with("are missing here."), "{text}");
        // From 6 to 98 ms: too wide for a conclusion.
        let unsteady = Phases { qos: phase(10.0, [6.0, 98.0], 0.2), ..harmed() };
        let (verdict, text) = told(&unsteady);
        assert_eq!((verdict.qos, verdict.gained), (Change::None, false));
        assert!(text.contains("It is unsteady (95 %: 6.00 ms to 98.0 ms), so something else disturbs"), "{text}");
        let qos = serde_json::json!({"notes": ["no freezer"]});
        let noted = judge(&idle, 2, &Said { qos, ..said() }).text.join(" ");
        assert!(noted.ends_with("It says: no freezer."), "{noted}");
        let short = Phases { qos: Phase { seconds: 3.0, ..idle.qos.clone() }, ..idle };
        assert!(told(&short).1.ends_with("It had 3.00 s, and takes about 20 s to learn: try --seconds 60 or more."));
        let worse = Phases { qos: phase(40.0, [38.0, 42.0], 1.9), ..harmed() };
        let (verdict, text) = told(&worse);
        assert_eq!((verdict.qos, verdict.gained), (Change::Longer, false));
        assert!(text.contains("cotenant qos did harm here: p99 40.0 ms."), "{text}");
    }

    /// Holds run/demo.
    #[test]
    fn the_price_and_what_is_simpler_are_said() {
        let dear = Phases { qos: phase(0.3, [0.29, 0.33], 0.05), ..harmed() };
        assert!(told(&dear).1.ends_with("if the batch program waits."));
        let simple = Phases { nice: phase(0.31, [0.3, 0.32], 1.8), ..harmed() };
        let (_, text) = told(&simple);
        assert!(text.contains("nice 19 is enough: p99 310 µs."), "{text}");
        assert!(text.starts_with("Take the one line: nice -n 19 CMD. It does as well here"), "{text}");
        let by_hand = Phases { background: phase(0.31, [0.3, 0.32], 1.8), ..harmed() };
        let (verdict, text) = told(&by_hand);
        assert_eq!((verdict.take, verdict.gained), (Some("systemd-run -p CPUWeight=idle CMD"), true));
        assert!(text.starts_with("Take the one line: systemd-run -p CPUWeight=idle CMD."), "{text}");
        assert!(
            text.contains("(cpu.idle 1 of a control group) is enough: p99 310 µs. The batch program gets 1.80"),
            "{text}"
        );
        let starves = Phases { background: phase(0.31, [0.3, 0.32], 1.4), ..harmed() };
        assert_eq!(told(&starves).0.take, None, "qos leaves 1.5");
        assert_eq!(told(&harmed()).0.take, None, "with it the p99 is still twice as long");
        // Still longer than alone, although far shorter than before.
        let part = Phases { qos: phase(0.58, [0.5, 0.6], 1.5), ..harmed() };
        assert!(told(&part).1.contains("cotenant qos helps: 2.00 times as long as alone: 580 µs, not 290 µs."));
        let unsteady = Phases { qos: phase(0.37, [0.19, 6.0], 1.5), ..simple.clone() };
        assert_eq!(told(&unsteady).0.take, None, "{}", told(&unsteady).1);
        let useless = Phases { nice: phase(24.0, [22.0, 26.0], 1.8), ..harmed() };
        assert!(told(&useless).1.contains("nice 19 does not help: p99 24.0 ms."));
        let harmful = Phases { nice: phase(50.0, [48.0, 52.0], 1.8), ..harmed() };
        assert!(told(&harmful).1.contains("nice 19 makes it even longer: p99 50.0 ms."));
    }

    #[test]
    fn what_does_nothing_has_its_reason() {
        let no_effect =
            "the batch program is at nice 19, which has no effect on the server: other autogroup".to_owned();
        let said = Said { no_effect: Some(no_effect), ..said() };
        let useless = Phases { nice: phase(24.0, [22.0, 26.0], 1.8), ..harmed() };
        let text = judge(&useless, 2, &said).text.join("\n");
        assert!(
            text.contains("does not help: p99 24.0 ms. The batch program is at nice 19, which has no effect"),
            "{text}"
        );
        assert!(!judge(&harmed(), 2, &said).text.join("\n").contains("no effect"), "it helped");
    }

    /// Holds qos/verdict.
    #[test]
    fn the_goal_comes_first_in_the_words_of_all() {
        let text = |judgement: &str| {
            let qos = serde_json::json!({"high": [{"judgement": judgement}]});
            judge(&harmed(), 2, &Said { qos, ..said() }).text[0].clone()
        };
        assert_eq!(text("kept 93 % (91 to 95; goal 90 %)"), "cotenant qos: kept 93 % (91 to 95; goal 90 %).");
        assert!(judge(&harmed(), 2, &said()).text[0].starts_with("Beside the batch program"));
    }

    /// On a machine on which others used both CPUs, a p99 of a second was "enough".
    /// Holds run/demo.
    #[test]
    fn a_busy_machine_gives_no_verdict() {
        let usage = |others| Some(Usage { seconds: 1.0, of_cpus: 2, others, ..Usage::default() });
        let busy = Said { seen: Seen { before: usage(1.9), during: usage(0.1) }, ..said() };
        let simple = Phases {
            nice: phase(988.0, [980.0, 990.0], 1.8),
            together: phase(2000.0, [1900.0, 2100.0], 1.8),
            ..harmed()
        };
        let verdict = judge(&simple, 2, &busy);
        assert!(
            verdict.text[0].starts_with("not judged: this machine was busy before the start (1.9 of 2 CPUs"),
            "{verdict:?}"
        );
        assert!(!verdict.gained && verdict.take.is_none() && !verdict.text.join(" ").contains("enough"), "{verdict:?}");
    }
}
