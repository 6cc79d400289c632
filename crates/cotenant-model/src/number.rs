//! Numbers for people: few digits, a prefix for large ones, no exponent.

const PREFIXES: [&str; 9] = ["n", "µ", "m", "", "k", "M", "G", "T", "P"];
const ONE: i32 = 3; // of them
/// Below this, an exponent is clearer than zeros.
const TINY: f64 = 1e-12;
/// Digits that distinguish all doubles.
const ALL: usize = 17;

/// This many significant digits, and a prefix of at least the given one.
fn prefixed(value: f64, digits: usize, least: i32) -> (String, &'static str) {
    let rounded = format!("{value:.*e}", digits - 1); // 999.9 is 1.00 k
    let exponent = rounded.split_once('e').and_then(|(_, exponent)| exponent.parse::<i32>().ok()).unwrap_or_default();
    let step = if value == 0.0 { 0 } else { exponent.div_euclid(3).clamp(least, PREFIXES.len() as i32 - 1 - ONE) };
    let decimals = (digits as i32 - 1 - (exponent - 3 * step)).max(0) as usize;
    (format!("{:.decimals$}", value / 10_f64.powi(3 * step)), PREFIXES[(step + ONE) as usize])
}

/// Three digits, and the prefix of a unit: `97.3 µ`, `1.23 G`; the unit follows.
pub fn scaled(value: f64) -> String {
    let (number, prefix) = prefixed(value, 3, -ONE);
    format!("{number} {prefix}")
}

/// This many significant digits of a unitless number, without a prefix for small ones: `0.0000973`, `12.0`, `1.23 G`.
pub fn significant(value: f64, digits: usize) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    if value.abs() < TINY {
        return format!("{value:.*e}", digits - 1);
    }
    let (number, prefix) = prefixed(value, digits, 0);
    if prefix.is_empty() { number } else { format!("{number} {prefix}") }
}

/// The format of result tables: three decimals below 10, one above, three digits below a hundredth.
pub fn short(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        a if a < 0.01 => significant(value, 3),
        a if a < 10.0 => format!("{value:.3}"),
        _ => format!("{value:.1}"),
    }
}

/// Two values with this many digits, or more until they differ.
pub fn apart([a, b]: [f64; 2], least: usize, write: impl Fn(f64, usize) -> String) -> [String; 2] {
    let with = |digits| [write(a, digits), write(b, digits)];
    let differ = |[a, b]: &[String; 2]| a != b;
    let first = with(least);
    if a == b || differ(&first) { first } else { (least + 1..=ALL).map(with).find(differ).unwrap_or(first) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_prefixes() {
        let values = [9.73e-5, 8.2e7, 999.9, 12.0, 0.0, -1.5e9, 3e21];
        let shown = ["97.3 µ", "82.0 M", "1.00 k", "12.0 ", "0.00 ", "-1.50 G", "3000000 P"];
        assert_eq!(values.map(scaled), shown);
    }

    #[test]
    fn nothing_has_an_exponent() {
        let values = [9.73e-5, 2.5e-4, 0.6, 12.0, 999.9, 0.0, 8.2e7, -1.5e-3];
        let shown = ["0.0000973", "0.000250", "0.600", "12.0", "1.00 k", "0", "82.0 M", "-0.00150"];
        assert_eq!(values.map(|value| significant(value, 3)), shown);
        assert_eq!(significant(1e-20, 3), "1.00e-20");
    }

    #[test]
    fn two_values_look_different_if_they_are() {
        let apart = |a, b| apart([a, b], 4, significant).join(" > ");
        assert_eq!(apart(9.1e-4, 2.5e-4), "0.0009100 > 0.0002500");
        assert_eq!(apart(2.500_001e-4, 2.5e-4), "0.0002500001 > 0.0002500000");
        assert_eq!(apart(7.500_04e7, 7.5e7), "75.0004 M > 75.0000 M");
        assert_eq!(apart(1.0, 1.0), "1.000 > 1.000");
        let next = f64::from_bits(2.5e-4_f64.to_bits() + 1);
        assert_ne!(super::apart([next, 2.5e-4], 4, significant)[0], significant(2.5e-4, 4));
        let [value, threshold] = super::apart([next, 2.5e-4], 4, significant);
        assert_ne!(value, threshold);
    }
}
