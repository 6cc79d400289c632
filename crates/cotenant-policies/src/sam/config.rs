//! The paper's rules of SAM, and ours.

use serde::{Deserialize, Serialize};
use std::str::FromStr;

macro_rules! switches {
    ($($(#[$doc:meta])* $field:ident = $name:literal, $paper:literal, $default:literal;)*) => {
        /// Rules beyond the paper's figures 3 and 4, each with its switch: one from its text, ours (on by default), and
        /// those after SAM-MPH (off by default). [`SamConfig::paper_exact`] is the paper's algorithm.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
        #[allow(clippy::struct_excessive_bools)] // independent switches, not states
        pub struct SamConfig {
            $($(#[$doc])* pub $field: bool,)*
        }

        impl SamConfig {
            /// The names of the switches for [`FromStr`] and configuration files.
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
    /// Stage 2 also repairs tasks that were never moved reluctantly: their home is the node with most of their pages.
    page_home = "page-home", false, true;
    /// A socket full of sharers is never a source of stage 1. Another one is a source only for a destination that takes
    /// all its sharers or ends up with more than it has, and not after it gained some in the same round. Off: sharers
    /// that do not fit one socket swing forever.
    keep_full = "keep-full", false, true;
    /// A task displaced by a returning one does not displace a memory-bound task in turn. Off: memory-bound tasks of a
    /// crowded socket push each other out, one per round.
    no_chains = "no-chains", false, true;
    /// With no more tasks than cores, second contexts stay unused, so that hyperthreading changes no decision (§4.3).
    /// Off: sharers fill a socket's second contexts, as in figure 4, while cores elsewhere are idle.
    whole_cores = "whole-cores", true, true;
    /// Sharers are brought to those of their own application, also by a swap with a sharer that also returns to its
    /// own. Off: any sharers are brought together, and none makes way, as in figure 4.
    own_app = "own-app", false, false;
    /// Where sharers are brought to others, those are placed where they are, so that the kernel does not move them off
    /// the fuller socket. Off: only moving tasks are placed.
    hold_partners = "hold-partners", false, false;
    /// Stage 1 works on last-level-cache domains in packages with several. Off: on packages.
    llc_domains = "llc-domains", false, true;
    /// Stages 2 and 3 work on memory nodes in packages with several. Off: on packages.
    memory_nodes = "memory-nodes", false, true;
    /// If the machine file has no remote threshold, use the rate that costs 5 % at the machine's latencies.
    derive_remote = "derive-remote", false, true;
    /// After SAM-MPH: sharers with few memory stalls tolerate latency and are not brought together. Of the others those
    /// that stall most come first, and those that stall least make way first. The threshold for stalls is inferred.
    latency_tolerance = "latency-tolerance", false, false;
    /// After SAM-MPH: a task acts in a class, or returns from remote memory, only after several such intervals in a
    /// row. Their number is inferred.
    hysteresis = "hysteresis", false, false;
    /// After SAM-MPH: two tasks that use a core well do not share one if one could share with a waiting task. The stage
    /// is inferred; it needs `--pin cpu`.
    core_sharing = "core-sharing", false, false;
}

impl SamConfig {
    /// The default plus the additions that sped up simulated mixes, beyond figure 4 (`lab/docs/sam-switches.md`): the
    /// default of `auto`.
    pub const fn recommended() -> Self {
        Self { own_app: true, hold_partners: true, ..Self::usual() }
    }

    /// The default with all additions after SAM-MPH (ATC'16).
    pub const fn mph() -> Self {
        Self { latency_tolerance: true, hysteresis: true, core_sharing: true, ..Self::usual() }
    }
}

impl Default for SamConfig {
    fn default() -> Self {
        Self::usual()
    }
}

/// A text that is not a set of switches.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a setting of sam; write 'paper', 'default', 'recommended' or 'mph', then +NAME or -NAME of: \
         {names}", names = SamConfig::SWITCHES.join(", \
     "))]
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
