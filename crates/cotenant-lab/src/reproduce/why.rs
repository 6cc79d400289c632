//! Reasons for unmet statements of the papers, for rows without one of their own: found by changing one thing at a
//! time, within what the machine or the programs could really have, and repeating the experiment. No sentence has a
//! figure of such a run, since nobody repeats it; the pages have those that a command gives.

/// A sentence for an experiment.
const WHY: &[(&str, &str)] = &[
    ("sam-assumptions", "what moves it is what the other arms show, one by one and together"),
    (
        "feliu-characterization",
        "counts of L1 misses were found for ten programs, and cycles per instruction are a newer core's: with twice \
         the cycles fewer programs exceed 40/µs at the L2",
    ),
    (
        "feliu-memory",
        "how long the bus delays accesses is a guess, and cycles per instruction are a newer core's. With ten times \
         of the wait nearly all programs above 2/µs lose what they should",
    ),
    (
        "feliu-l2",
        "L1 misses of 17 programs, and the L2's bandwidth and replacement, are guesses. With half of that bandwidth, \
         or with LRU, about as many programs lose 5 % as in the paper",
    ),
    (
        "feliu-degradation",
        "how long the bus delays accesses, and cycles per instruction, are guesses. With ten times and twice of them \
         more programs lose and fewer do, as the page shows",
    ),
    (
        "feliu-speedup",
        "lines fetched ahead are no misses that a policy sees: where they are, each gains. So does each where \
         programs take twice the cycles and the bus delays accesses ten times as long",
    ),
    ("feliu-fairness", "what it takes was not found"),
    (
        "resense-sensitivity",
        "no guess of the machines explains it. As many statements are met, to a few, with other nodes twice as far, \
         half the bandwidth of memory, five times its wait, and caches of half the size",
    ),
    (
        "resense-small",
        "how much data programs share is assumed: less of it brings Yorkfield's gains nearer, more of it Harpertown's, \
         and either way others go further off",
    ),
    (
        "resense-medium",
        "how far other nodes are is a guess: with twice of it the gains are larger; the Opteron's largest in the paper \
         was reached by nothing that was tried",
    ),
    ("resense-large", "how many programs run at a time, so how long runs are, is not in the paper"),
    (
        "resense-fixed-signs",
        "the data that programs share are assumed: without any, all positive loses on Harpertown; all negative is what \
         the simulated Linux does",
    ),
    (
        "resense-optimal",
        "the printed scores are of programs that react otherwise than the simulated ones: with simulated scores for the \
         six of other sign, most of the Xeon's distance is gone",
    ),
    (
        "tang-solo",
        "bigtable's threads are assumed to write into one shared line per 1,000 instructions: with more it gains more by \
         being together",
    ),
    (
        "tang-threads",
        "footprints and shared lines are assumed: with two shared lines per 1,000 instructions bigtable's is the paper's",
    ),
    (
        "tang-model",
        "coefficients belong to a machine; that the request rate alone tells so much was not found: it does with every \
         other machine that was tried",
    ),
];

/// The same if only a part of it ran, which has no such sentence.
const QUICK: &str = "only a part of the cases ran (--quick)";

/// If no tried change meets the paper, and all cases ran.
const NOT_FOUND: &str = "the cause was not found";

/// The sentence, for rows without their own.
pub(super) fn of(experiment: &str, quick: bool) -> &'static str {
    let sentence = WHY.iter().find(|(name, _)| *name == experiment).map(|(_, why)| *why);
    sentence.unwrap_or(if quick { QUICK } else { NOT_FOUND })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_cause_says_so() {
        assert_eq!(of("tang-naps", false), NOT_FOUND);
        assert_eq!(of("tang-naps", true), QUICK);
        assert!(of("tang-solo", false).contains("bigtable"));
        // It would be one that no run gives: decimals, and what is "instead of" something.
        let has_figure = |why: &&str| {
            let decimals = why.split('.').rev().skip(1).any(|part| part.ends_with(|c: char| c.is_ascii_digit()));
            why.contains(" instead of ") || decimals
        };
        assert_eq!(WHY.iter().map(|(_, why)| *why).find(has_figure), None);
    }
}
