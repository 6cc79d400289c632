//! Why statements of the papers are not met, for those rows that do not say so themselves: what was tried, by changing
//! one thing at a time and running the experiment again, and what came of it. The pages of the experiments have the
//! figures (`docs/reference/reproduce-*.md`).

/// A sentence for an experiment.
const WHY: &[(&str, &str)] = &[
    ("sam-assumptions", "what moves it is what the other arms show, one by one and together"),
    (
        "feliu-characterization",
        "counts of L1 misses were found for ten programs, and cycles per instruction are a newer core's: with twice \
         the cycles 11 programs exceed 40/µs at the L2, and 8 where the bus lets wait ten times as long, too",
    ),
    (
        "feliu-memory",
        "what the bus lets wait is a guess: with ten times of it 14 of the 15 programs above 2/µs lose what they should, \
         with twice the cycles per instruction 12 of the 15 below do, and with both 11 of 14 and 9 of 15",
    ),
    (
        "feliu-l2",
        "L1 misses of 17 programs, and the L2's bandwidth, are guesses: with three times these misses 10 programs lose \
         5 %, with half of that bandwidth 12",
    ),
    (
        "feliu-degradation",
        "what the bus lets wait, and cycles per instruction, are guesses: with ten times and twice of them more programs \
         lose and fewer do, as the page shows",
    ),
    (
        "feliu-speedup",
        "lines fetched ahead are no misses that a policy sees: where they are, each gains 3.5 %; with a bus that lets wait \
         ten times as long and twice the cycles per instruction 2.0, 2.5 and 3.9 %",
    ),
    ("feliu-balance", "which programs the paper's mix 1 has is not printed: in ten mixes of ours it is 2 to 74 %"),
    (
        "feliu-fairness",
        "in 4 of ten mixes where lines fetched ahead are seen, in 3 with twice the cycles per instruction, in 1 or 2 where \
         the bus lets wait longer; what else it takes was not found",
    ),
    (
        "resense-sensitivity",
        "no guess of the machines explains it: 52 statements of 105 are met with other nodes twice as far, 58 with half \
         the bandwidth of memory or five times its wait, 59 with caches of half the size",
    ),
    (
        "resense-small",
        "how much data programs share is assumed: with half of it Yorkfield's are met, with 1.8 times of it Harpertown's, \
         and either way others are not",
    ),
    (
        "resense-medium",
        "how far other nodes are is a guess: with twice of it 15 of 18 are met; the Opteron's 46.6 % were reached by \
         nothing that was tried (19 at most)",
    ),
    (
        "resense-large",
        "how many programs run at a time is not in the paper: with runs of 20 s instead of 60 s 11 of 16 are met",
    ),
    (
        "resense-fixed-signs",
        "the data that programs share are assumed: without any, all positive loses 1.8 % on Harpertown, and all negative \
         0.3 % on the Opteron",
    ),
    (
        "resense-optimal",
        "the printed scores are of programs that react otherwise than the simulated ones: with simulated scores for the \
         six of other sign the Xeon's distance is 1.7 and 2.0 points instead of 6.8 and 8.1",
    ),
    (
        "tang-solo",
        "bigtable's threads are assumed to write into one shared line per 1,000 instructions: with four it gains 12.4 % by \
         being together, with eight 21.3 %",
    ),
    (
        "tang-threads",
        "footprints, shared lines and cores per socket are assumed: with two shared lines per 1,000 instructions \
         bigtable's is the paper's, with footprints of 6 MiB and the X5660's cores 7 of 7 on Westmere are met",
    ),
    (
        "tang-model",
        "coefficients belong to a machine: with a quarter of the memory bandwidth b is 12.1 and a 0.78; that the request \
         rate alone tells so much was not found: 0.80 to 0.94 with every other machine that was tried",
    ),
];

/// The same where only a part of it ran, and there is no such sentence.
const QUICK: &str = "only a part of the cases ran (--quick)";

/// The sentence; `None` where every row says it itself, or all are met.
pub(super) fn of(experiment: &str, quick: bool) -> Option<&'static str> {
    let sentence = WHY.iter().find(|(name, _)| *name == experiment).map(|(_, why)| *why);
    sentence.or(quick.then_some(QUICK))
}
