//! Quantities as people type them.

pub use cotenant_model::parse::duration;
use std::time::Duration;

/// Shortest accepted interval: below it, sampling would dominate the machine's load.
const MIN_INTERVAL: Duration = Duration::from_millis(1);
/// Longest interval that is accepted.
const MAX_INTERVAL: Duration = Duration::from_secs(3600);

/// Parses a sampling interval: a duration between 1 ms and 1 h.
///
/// # Errors
/// The valid forms.
pub fn interval(text: &str) -> Result<Duration, String> {
    let d = duration(text)?;
    if (MIN_INTERVAL..=MAX_INTERVAL).contains(&d) {
        Ok(d)
    } else {
        Err(format!("an interval lies between 1ms and 60min, not {text}"))
    }
}

/// The longest run.
const MAX_LENGTH: Duration = Duration::from_secs(366 * 24 * 3600);

/// Parses how long a run or a part of it lasts: with a unit, since a bare number is meant as seconds as often as not.
///
/// # Errors
/// What it should be.
pub fn length(text: &str) -> Result<Duration, String> {
    if text.parse::<f64>().is_ok() {
        return Err(format!("'{text}' has no unit; write for example {text}s, {text}ms or {text}min"));
    }
    let length = duration(text)?;
    if (MIN_INTERVAL..=MAX_LENGTH).contains(&length) {
        Ok(length)
    } else {
        Err(format!("a run lasts between 1ms and {}h, not {text}", MAX_LENGTH.as_secs() / 3600))
    }
}

/// Parses what collecting may cost, in percent of one CPU.
///
/// # Errors
/// The valid forms.
pub fn collector_budget(text: &str) -> Result<f64, String> {
    let number = text.trim_end_matches('%').parse::<f64>().ok().filter(|n| (0.01..=100.0).contains(n));
    number.ok_or_else(|| format!("a budget lies between 0.01 and 100 percent of one CPU, not {text}"))
}

/// Parses a size in bytes such as `512K`, `64M`, `1G` (powers of 1,024).
///
/// # Errors
/// The valid forms.
pub fn bytes(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let shift = match unit.trim_end_matches("iB").trim_end_matches('B') {
        "" => 0,
        "K" | "k" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return Err(format!("'{unit}' is not a unit of size; use K, M, G or T, as in 64M")),
    };
    number
        .parse::<u64>()
        .ok()
        .and_then(|n| n.checked_mul(1 << shift))
        .ok_or_else(|| format!("'{text}' is not a size; write for example 64M"))
}

/// The least and the greatest positive value.
pub fn ends(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, 0.0), |(least, most), value| (least.min(value), most.max(value)))
}

/// Parses a process id.
///
/// # Errors
/// The valid forms.
pub fn pid(text: &str) -> Result<u32, String> {
    text.parse::<u32>()
        .ok()
        .filter(|pid| (1..=i32::MAX as u32).contains(pid))
        .ok_or_else(|| format!("'{text}' is not a process id; give numbers, as in 4711,4712"))
}

/// A share of a speed, from 1 % to 99.9 %: `90%` or `0.9`.
///
/// # Errors
/// The valid forms.
pub fn share(text: &str) -> Result<f64, String> {
    let (digits, unit) = text.strip_suffix('%').map_or((text, 1.0), |digits| (digits.trim_end(), 100.0));
    let value = digits.parse::<f64>().ok().map(|value| value / unit).filter(|value| (0.01..=0.999).contains(value));
    value.ok_or_else(|| format!("'{text}' is not a share from 1% to 99.9%, such as 90% or 0.9"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets() {
        assert_eq!((collector_budget("1"), collector_budget("0.5%")), (Ok(1.0), Ok(0.5)));
        for wrong in ["0", "101", "-1", "NaN", "much", ""] {
            assert!(collector_budget(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn durations() {
        assert_eq!(duration("100ms").unwrap(), Duration::from_millis(100));
        assert_eq!(duration("50").unwrap(), Duration::from_millis(50));
        assert_eq!(duration("1.5s").unwrap(), Duration::from_millis(1500));
        assert_eq!(duration("250us").unwrap(), Duration::from_micros(250));
        assert_eq!((duration("5h"), interval("1h")), (Ok(Duration::from_secs(18_000)), Ok(MAX_INTERVAL)));
        for bad in ["", "ms", "-1s", "1d", "1..5s", "99999999999999999999s"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
        assert_eq!(length("8h"), Ok(Duration::from_secs(28_800)));
        assert!(length("30").is_err() && length("0s").is_err() && length("").is_err());
        assert!(interval("0").is_err());
        assert!(interval("2h").is_err());
        assert!(interval("0.5ms").is_err());
    }

    #[test]
    fn process_ids() {
        assert_eq!(pid("1").unwrap(), 1);
        for bad in ["", "0", "-1", "redis", "4294967295"] {
            assert!(pid(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes() {
        assert_eq!(bytes("64M").unwrap(), 64 << 20);
        assert_eq!(bytes("1GiB").unwrap(), 1 << 30);
        assert_eq!(bytes("512").unwrap(), 512);
        for bad in ["", "M", "-1", "1X", "99999999999T"] {
            assert!(bytes(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn shares() {
        assert_eq!((share("90%"), share("0.8"), share("90 %")), (Ok(0.9), Ok(0.8), Ok(0.9)));
        for bad in ["0", "100%", "90", "x", "-1%", "nan"] {
            assert!(share(bad).is_err(), "{bad}");
        }
    }
}
