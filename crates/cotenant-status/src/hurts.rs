//! The table of interference, in words.

use cotenant_cli::messages::count;
use cotenant_model::interference::Row;

/// Most pairs that are named; JSON has all.
const NAMED: usize = 10;

/// A line for each pair, the greatest loss first.
pub fn lines(rows: &[Row]) -> Vec<String> {
    let mut lines: Vec<String> = rows.iter().take(NAMED).map(line).collect();
    let more = rows.len().saturating_sub(NAMED);
    lines.extend((more > 0).then(|| format!("{} more; --json has all", count(more as u64, "pair"))));
    lines
}

/// `web loses 12.3 % (9.1 to 15.4 %) of its speed while backup runs (14 events)`.
fn line(row: &Row) -> String {
    let Row { victim, aggressor, events, .. } = row;
    let [loss, interval] = shares(row);
    let events = count(u64::from(*events), "event");
    format!("{victim} loses {loss} ({interval}) of its speed while {aggressor} runs ({events})")
}

/// The loss and its interval, as percentages.
pub fn shares(row: &Row) -> [String; 2] {
    let percent = |share: f64| format!("{:.1}", share * 100.0);
    [format!("{} %", percent(row.loss)), format!("{} to {} %", percent(row.low), percent(row.high))]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_is_a_sentence() {
        let row =
            Row { victim: "web".into(), aggressor: "backup".into(), loss: 0.123, low: 0.091, high: 0.154, events: 14 };
        let told = lines(std::slice::from_ref(&row));
        assert_eq!(told, ["web loses 12.3 % (9.1 to 15.4 %) of its speed while backup runs (14 events)"]);
        let told = lines(&vec![row; 12]);
        assert_eq!((told.len(), told[10].as_str()), (11, "2 pairs more; --json has all"));
    }
}
