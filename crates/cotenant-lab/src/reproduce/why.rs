//! Reasons for unmet statements of the papers, for rows without one of their own: found by changing one thing at a
//! time, within what the machine or the programs could really have, and repeating the experiment. The pages of the
//! experiments have the figures (`lab/docs/reproduce-*.md`).

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
        "how much data programs share is assumed: half of it brings Yorkfield's gains nearer, 1.8 times of it \
         Harpertown's, and either way others go further off",
    ),
    (
        "resense-medium",
        "how far other nodes are is a guess. With twice of it the Opteron's largest gain is 15 instead of 10 %. Its \
         46.6 % were reached by nothing that was tried (19 at most)",
    ),
    (
        "resense-large",
        "how many programs run at a time is not in the paper. On two instances, with runs of 20 s instead of 60 s, \
         the gains by simulated scores are 6 to 7 % instead of 2 to 3 %",
    ),
    (
        "resense-fixed-signs",
        "the data that programs share are assumed: without any, all positive loses 1.8 % on Harpertown; all negative is \
         what the simulated Linux does, to 0.1 %",
    ),
    (
        "resense-optimal",
        "the printed scores are of programs that react otherwise than the simulated ones. On two instances, with \
         simulated scores for the six of other sign, the Xeon's distance is 1.7 and 2.0 points instead of 6.8 and \
         8.1",
    ),
    (
        "tang-solo",
        "bigtable's threads are assumed to write into one shared line per 1,000 instructions: with four it gains 12.4 % by \
         being together, with eight 21.3 %",
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
    }
}
