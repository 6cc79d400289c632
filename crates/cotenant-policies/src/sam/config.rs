//! What of SAM is the paper's and what is ours.

use serde::{Deserialize, Serialize};
use std::str::FromStr;

macro_rules! switches {
    ($($(#[$doc:meta])* $field:ident = $name:literal, $paper:literal, $default:literal;)*) => {
        /// Rules beyond the paper's figures 3 and 4, each with its switch: one that its text adds, ours, which are on
        /// unless switched off, and those after SAM-MPH, which are off unless switched on. What the paper says is
        /// [`SamConfig::paper_exact`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
        #[allow(clippy::struct_excessive_bools)] // independent switches, not states
        pub struct SamConfig {
            $($(#[$doc])* pub $field: bool,)*
        }

        impl SamConfig {
            /// The names of the switches, as [`FromStr`] and configuration files take them.
            pub const SWITCHES: &[&str] = &[$($name,)*];

            /// The paper's own algorithm, without additions.
            pub const fn paper_exact() -> Self {
                Self { $($field: $paper,)* }
            }

            const fn usual() -> Self {
                Self { $($field: $default,)* }
            }

            fn switch(&mut self, name: &str) -> Option<&mut bool> {
                match name {
                    $($name => Some(&mut self.$field),)*
                    _ => None,
                }
            }
        }
    };
}

switches! {
    /// Bandwidth is summed in LLC misses per second of wall-clock time. Off: per unhalted cycle, times the nominal
    /// clock, which over-counts tasks that run part of the time (paper, figure 3).
    wall_clock = "wall-clock", false, true;
    /// A task that moved keeps its coherence class for one interval, because a move itself causes coherence traffic
    /// (§4.5).
    cooldown = "cooldown", false, true;
    /// Stage 2 also repairs tasks that were never moved reluctantly: the node that holds most of their pages is their
    /// home.
    page_home = "page-home", false, true;
    /// A socket whose contexts are all held by sharers is never a source of stage 1; another one only for a
    /// destination that takes all its sharers or ends up with more of them than it has, and not after it drew some
    /// itself in the same round. Off: sharers that do not fit one socket swing for ever.
    keep_full = "keep-full", false, true;
    /// A task that lost its place to one that came home does not take a memory-bound task's place in turn. Off:
    /// memory-bound tasks of a crowded socket push each other out, one per round.
    no_chains = "no-chains", false, true;
    /// While there are no more tasks than cores, second contexts of cores are nobody's: hyperthreading then changes
    /// no decision (§4.3). Off: sharers fill a socket's second contexts, as figure 4 alone would, while cores
    /// elsewhere are idle.
    whole_cores = "whole-cores", true, true;
    /// Sharers are brought to those of their own application, also by changing places with a sharer of another one
    /// that so comes to its own. Off: any sharers are brought together, and none makes way, as in figure 4.
    own_app = "own-app", false, false;
    /// Where sharers are brought to others, those others are placed where they are, so that the kernel does not move
    /// them away from a socket that has become the fuller one. Off: only tasks that move are placed.
    hold_partners = "hold-partners", false, false;
    /// Stage 1 works on last-level-cache domains where a package has several. Off: on packages.
    llc_domains = "llc-domains", false, true;
    /// Stages 2 and 3 work on memory nodes where a package has several. Off: on packages.
    memory_nodes = "memory-nodes", false, true;
    /// Where the machine file gives no remote threshold, take the rate that costs 5 % at the machine's latencies.
    derive_remote = "derive-remote", false, true;
    /// After SAM-MPH: sharers whose stalls on memory are few tolerate the latency and are not brought together; of
    /// the others those that stall most come first, and those that stall least make way first. What the stalls are
    /// held against is inferred.
    latency_tolerance = "latency-tolerance", false, false;
    /// After SAM-MPH: a task acts in a class, or goes home from remote memory, only when it has been so for several
    /// intervals in a row. Their number is inferred.
    hysteresis = "hysteresis", false, false;
    /// After SAM-MPH: two tasks that use a core well do not share one where one could share with a task that waits.
    /// The stage is inferred; it needs `--pin cpu`.
    core_sharing = "core-sharing", false, false;
}

impl SamConfig {
    /// The default with what made simulated mixes faster, but is not what figure 4 says
    /// (`lab/docs/sam-switches.md`): what `auto` uses unless it is told otherwise.
    pub const fn recommended() -> Self {
        Self { own_app: true, hold_partners: true, ..Self::usual() }
    }

    /// The default with all that is after SAM-MPH (ATC'16).
    pub const fn mph() -> Self {
        Self { latency_tolerance: true, hysteresis: true, core_sharing: true, ..Self::usual() }
    }
}

impl Default for SamConfig {
    fn default() -> Self {
        Self::usual()
    }
}

/// A text that names no set of switches.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no setting of sam; write 'paper', 'default', 'recommended' or 'mph', then +NAME or -NAME of: {names}", names = SamConfig::SWITCHES.join(", "))]
pub struct SamConfigError(String);

impl FromStr for SamConfig {
    type Err = SamConfigError;

    /// `paper`, `default`, `recommended` or `mph`, followed by `+switch` or `-switch`, separated by commas:
    /// `paper,+cooldown`, `-page-home`.
    fn from_str(text: &str) -> Result<Self, SamConfigError> {
        let mut config = Self::default();
        for word in text.split(',').map(str::trim) {
            let error = || SamConfigError(word.to_owned());
            match word {
                "paper" => config = Self::paper_exact(),
                "default" => config = Self::default(),
                "recommended" => config = Self::recommended(),
                "mph" => config = Self::mph(),
                _ => {
                    let on = match word.as_bytes().first() {
                        Some(b'+') => true,
                        Some(b'-') => false,
                        _ => return Err(error()),
                    };
                    *config.switch(&word[1..]).ok_or_else(error)? = on;
                }
            }
        }
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_and_switches() {
        assert_eq!("paper".parse(), Ok(SamConfig::paper_exact()));
        assert_eq!("default".parse(), Ok(SamConfig::default()));
        assert_eq!("mph".parse(), Ok(SamConfig::mph()));
        assert_eq!("recommended".parse(), Ok(SamConfig::recommended()));
        assert_eq!("recommended,-own-app,-hold-partners".parse(), Ok(SamConfig::default()));
        assert_eq!("mph,-latency-tolerance,-hysteresis,-core-sharing".parse(), Ok(SamConfig::default()));
        assert_eq!("default,+hysteresis".parse(), Ok(SamConfig { hysteresis: true, ..SamConfig::default() }));
        assert_eq!("-cooldown".parse(), Ok(SamConfig { cooldown: false, ..SamConfig::default() }));
        assert_eq!(
            "paper, +keep-full, +no-chains".parse(),
            Ok(SamConfig { keep_full: true, no_chains: true, ..SamConfig::paper_exact() })
        );
        for bad in ["", "papers", "+", "+coldown", "cooldown", "paper,,"] {
            assert!(bad.parse::<SamConfig>().is_err(), "{bad}");
        }
    }

    #[test]
    fn files_name_switches_as_the_command_line_does() {
        let read: SamConfig = toml::from_str("page-home = false").unwrap();
        assert_eq!(read, SamConfig { page_home: false, ..SamConfig::default() });
        let written: Vec<String> = toml::Table::try_from(SamConfig::default()).unwrap().keys().cloned().collect();
        let mut names = SamConfig::SWITCHES.to_vec();
        names.sort_unstable();
        assert_eq!(written, names);
        assert!(toml::from_str::<SamConfig>("page_home = false").is_err());
    }
}
