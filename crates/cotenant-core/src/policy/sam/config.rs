//! What of SAM is the paper's and what is ours.

use serde::{Deserialize, Serialize};
use std::str::FromStr;

macro_rules! switches {
    ($($(#[$doc:meta])* $field:ident = $name:literal,)*) => {
        /// Our additions to the paper's algorithm, each with its switch. All are on unless switched off; with all of them off
        /// ([`SamConfig::paper_exact`]) the policy does what figures 3 and 4 of the paper say.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
        #[allow(clippy::struct_excessive_bools)] // independent switches, not states
        pub struct SamConfig {
            $($(#[$doc])* pub $field: bool,)*
        }

        impl SamConfig {
            /// The names of the switches, as [`FromStr`] and configuration files take them.
            pub const SWITCHES: &[&str] = &[$($name,)*];

            const fn all(on: bool) -> Self {
                Self { $($field: on,)* }
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
    /// Bandwidth is summed in LLC misses per second of wall-clock time. Off: per unhalted cycle, times the nominal clock, which
    /// over-counts tasks that run part of the time (paper, figure 3).
    wall_clock = "wall-clock",
    /// A task that moved keeps its coherence class for one interval, because a move itself causes coherence traffic (§4.5).
    cooldown = "cooldown",
    /// Stage 2 also repairs tasks that were never moved reluctantly: the node that holds most of their pages is their home.
    page_home = "page-home",
    /// A socket whose contexts are all held by sharers is never a source of stage 1; another one only for a destination that takes all
    /// its sharers or ends up with more of them than it has, and not after it drew some itself in the same round. Off: sharers that
    /// do not fit one socket swing for ever.
    keep_full = "keep-full",
    /// A task that lost its place to one that came home does not take a memory-bound task's place in turn. Off: memory-bound
    /// tasks of a crowded socket push each other out, one per round.
    no_chains = "no-chains",
    /// Stage 1 works on last-level-cache domains where a package has several. Off: on packages.
    llc_domains = "llc-domains",
    /// Stages 2 and 3 work on memory nodes where a package has several. Off: on packages.
    memory_nodes = "memory-nodes",
    /// Where the machine file gives no remote threshold, take the rate that costs 5 % at the machine's latencies.
    derive_remote = "derive-remote",
}

impl SamConfig {
    /// The paper's own algorithm, without our additions.
    pub const fn paper_exact() -> Self {
        Self::all(false)
    }
}

impl Default for SamConfig {
    fn default() -> Self {
        Self::all(true)
    }
}

/// A text that names no set of switches.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no setting of sam; write 'paper' or 'default', then +NAME or -NAME of: {names}", names = SamConfig::SWITCHES.join(", "))]
pub struct SamConfigError(String);

impl FromStr for SamConfig {
    type Err = SamConfigError;

    /// `paper` or `default`, followed by `+switch` or `-switch`, separated by commas: `paper,+cooldown`, `-page-home`.
    fn from_str(text: &str) -> Result<Self, SamConfigError> {
        let mut config = Self::default();
        for word in text.split(',').map(str::trim) {
            let error = || SamConfigError(word.to_owned());
            match word {
                "paper" => config = Self::paper_exact(),
                "default" => config = Self::default(),
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
