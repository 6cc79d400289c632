//! Prometheus' answer to an instant query (`/api/v1/query`): JSON with one number.

use super::meter::{MeterError, number};
use serde::Deserialize;
use serde::de::IgnoredAny;

/// Why an answer has no number.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum QueryError {
    /// JSON that is not such an answer.
    #[error("the answer is no answer of Prometheus to a query: {0}; ask /api/v1/query?query=…")]
    Foreign(String),
    /// An error of Prometheus.
    #[error("Prometheus says '{0}'")]
    Refused(String),
    /// No series matches.
    #[error("the query has no result; try it in Prometheus")]
    Empty,
    /// Several series match.
    #[error("the query has {0} results; let it have one, as by sum(…) or max(…)")]
    Several(usize),
    /// The result is not a number.
    #[error("the query gives {0}, not a number; leave ranges to functions such as rate(…)")]
    Kind(&'static str),
    /// Its value is not finite.
    #[error(transparent)]
    Number(#[from] MeterError),
}

#[derive(Deserialize)]
struct Answer {
    status: String,
    #[serde(default)]
    error: String,
    data: Option<Data>,
}

#[derive(Deserialize)]
#[serde(tag = "resultType", content = "result", rename_all = "lowercase")]
enum Data {
    Scalar(Point),
    Vector(Vec<Series>),
    Matrix(IgnoredAny),
    String(IgnoredAny),
}

/// Time, and the value as text.
type Point = (f64, String);

#[derive(Deserialize)]
struct Series {
    /// Absent for a histogram.
    value: Option<Point>,
}

/// Whether an answer looks like a query result rather than a number or series.
pub fn is_query(answer: &str) -> bool {
    answer.trim_start().starts_with('{')
}

/// The one number in it.
///
/// # Errors
/// [`QueryError`]
pub fn queried(answer: &str) -> Result<f64, QueryError> {
    let foreign = |why: serde_json::Error| QueryError::Foreign(why.to_string());
    let Answer { status, error, data } = serde_json::from_str(answer).map_err(foreign)?;
    if status != "success" {
        return Err(QueryError::Refused(error.lines().next().unwrap_or_default().chars().take(160).collect()));
    }
    let value = match data.ok_or_else(|| QueryError::Foreign("there is no data in it".to_owned()))? {
        Data::Scalar((_, value)) => value,
        Data::Vector(series) => match &series[..] {
            [] => return Err(QueryError::Empty),
            [Series { value: Some((_, value)) }] => value.clone(),
            [_] => return Err(QueryError::Kind("a histogram")),
            more => return Err(QueryError::Several(more.len())),
        },
        Data::Matrix(_) => return Err(QueryError::Kind("a range of values")),
        Data::String(_) => return Err(QueryError::Kind("a text")),
    };
    Ok(number(&value)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(data: &str) -> String {
        format!(r#"{{"status":"success","data":{{{data}}},"warnings":[]}}"#)
    }

    #[test]
    fn the_one_number_is_found() {
        let vector =
            answer(r#""resultType":"vector","result":[{"metric":{"job":"x"},"value":[1435781451.781,"0.25"]}]"#);
        assert!(is_query(&vector) && !is_query("0.25\n") && !is_query("up{job=\"x\"} 1\n"));
        assert_eq!(queried(&vector), Ok(0.25));
        assert_eq!(queried(&answer(r#""resultType":"scalar","result":[1435781451,"3e2"]"#)), Ok(300.0));
        // Members in any order, including unknown ones.
        assert_eq!(queried(&answer(r#""stats":{},"result":[1,"2"],"resultType":"scalar""#)), Ok(2.0));
    }

    /// Holds speed/metrics.
    #[test]
    fn what_is_no_number_says_why() {
        let one = r#"{"metric":{},"value":[1,"NaN"]}"#;
        for (text, why) in [
            (answer(r#""resultType":"vector","result":[]"#), "no result"),
            (answer(&format!(r#""resultType":"vector","result":[{one},{one}]"#)), "2 results; let it have one"),
            (answer(&format!(r#""resultType":"vector","result":[{one}]"#)), "NaN"),
            (answer(r#""resultType":"vector","result":[{"metric":{},"histogram":[1,{}]}]"#), "a histogram"),
            (answer(r#""resultType":"matrix","result":[]"#), "a range of values"),
            (answer(r#""resultType":"string","result":[1,"x"]"#), "a text"),
            (r#"{"status":"error","errorType":"bad_data","error":"parse error"}"#.to_owned(), "says 'parse error'"),
            (r#"{"status":"success"}"#.to_owned(), "no data"),
            (r#"{"latency": 3}"#.to_owned(), "/api/v1/query"),
            ("{".to_owned(), "/api/v1/query"),
        ] {
            let error = queried(&text).expect_err(&text).to_string();
            assert!(error.contains(why) && !error.contains('\n'), "{text}: {error}");
        }
    }
}
