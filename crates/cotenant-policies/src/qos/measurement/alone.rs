//! The speed alone over pauses: kept until a better measurement replaces it.

use cotenant_model::Histogram;
use cotenant_model::histogram::Bucket;
use cotenant_model::stats::bootstrap;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Limit of kept pieces of pauses, or readings.
const MOST: usize = 24;

/// With fewer there is no 95 % interval.
const ENOUGH: usize = 6;

/// A newer measurement counts as equally good if its interval is at most this much wider.
const AS_GOOD: f64 = 1.25;

/// An interval no wider than this fraction of the speed counts as good enough.
const NARROW: f64 = 0.02;

/// This many certainly slower pauses in a row mean another load, not a disturbance.
const ANOTHER: usize = 3;

/// A piece of a pause: its answers, or one reading of a metric.
pub trait Piece: Clone {
    /// Pieces in the format of a recording.
    type Packed: Serialize + DeserializeOwned;

    /// Packs them.
    fn pack(pieces: &[Self]) -> Self::Packed;

    /// Unpacks them.
    fn unpack(packed: Self::Packed) -> Vec<Self>;

    /// The speed of pieces with multiplicities; `q` is the quantile of answers.
    fn speed(pieces: &[Self], q: f64) -> impl Fn(&[u64]) -> Option<f64>;
}

impl Piece for Histogram {
    /// All pieces, and for each bucket the pieces of its answers.
    type Packed = (Self, Vec<Vec<u64>>);

    fn pack(pieces: &[Self]) -> Self::Packed {
        let mut all = Self::default();
        for piece in pieces {
            all.add(piece);
        }
        let of = |piece: &Self| {
            let mut own = piece.buckets().iter().peekable();
            let count = |bucket: &Bucket| {
                own.next_if(|own| (own.low, own.high) == (bucket.low, bucket.high)).map_or(0, |own| own.count)
            };
            all.buckets().iter().map(count).collect()
        };
        let counts = pieces.iter().map(of).collect();
        (all, counts)
    }

    fn unpack((all, counts): Self::Packed) -> Vec<Self> {
        let piece = |counts: Vec<u64>| {
            Self::new(all.buckets().iter().zip(counts).map(|(bucket, count)| Bucket { count, ..*bucket }))
        };
        counts.into_iter().map(piece).collect()
    }

    fn speed(pieces: &[Self], q: f64) -> impl Fn(&[u64]) -> Option<f64> {
        let (all, counts) = Self::pack(pieces);
        move |times| {
            let drawn = all.buckets().iter().enumerate().map(|(i, bucket)| {
                let count = counts.iter().zip(times).map(|(counts, times)| counts[i] * times).sum();
                Bucket { count, ..*bucket }
            });
            Self::new(drawn).quantile(q).filter(|ns| *ns > 0.0).map(|ns| 1e9 / ns)
        }
    }
}

impl Piece for f64 {
    type Packed = Vec<Self>;

    fn pack(pieces: &[Self]) -> Vec<Self> {
        pieces.to_vec()
    }

    fn unpack(packed: Vec<Self>) -> Vec<Self> {
        packed
    }

    fn speed(pieces: &[Self], _: f64) -> impl Fn(&[u64]) -> Option<f64> {
        |times| {
            let sum: f64 = pieces.iter().zip(times).map(|(speed, times)| speed * *times as f64).sum();
            let n: u64 = times.iter().sum();
            (n > 0).then(|| sum / n as f64)
        }
    }
}

/// A speed with its interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// The speed.
    pub speed: f64,
    /// Its 95 % interval by the block bootstrap.
    interval: [f64; 2],
    /// Its pieces.
    pieces: usize,
}

impl Measurement {
    fn of<P: Piece>(pieces: &[P], q: f64) -> Option<Self> {
        let of = P::speed(pieces, q);
        let speed = of(&vec![1; pieces.len()])?;
        let interval = bootstrap::interval(pieces.len(), of).unwrap_or([0.0, f64::MAX]);
        Some(Self { speed, interval, pieces: pieces.len() })
    }

    /// The interval, if there are enough pieces for it.
    pub fn told(&self) -> Option<[f64; 2]> {
        (self.pieces >= ENOUGH).then_some(self.interval)
    }

    /// The interval's width as a fraction of the speed.
    fn width(&self) -> f64 {
        (self.interval[1] - self.interval[0]) / self.speed
    }
}

/// Results of pauses.
#[derive(Clone, Debug, PartialEq)]
pub struct Pauses<P> {
    /// The current speed alone.
    pub kept: Option<Measurement>,
    /// Pieces of the last pauses.
    pieces: Vec<P>,
    /// Those of the last certainly slower pauses in a row, one pause each.
    aside: Vec<Vec<P>>,
}

impl<P: Piece> Serialize for Pauses<P> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let aside: Vec<P::Packed> = self.aside.iter().map(|pause| P::pack(pause)).collect();
        (self.kept, P::pack(&self.pieces), aside).serialize(serializer)
    }
}

impl<'de, P: Piece> Deserialize<'de> for Pauses<P> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (kept, pieces, aside) = <(_, _, Vec<P::Packed>)>::deserialize(deserializer)?;
        Ok(Self { kept, pieces: P::unpack(pieces), aside: aside.into_iter().map(P::unpack).collect() })
    }
}

impl<P> Default for Pauses<P> {
    fn default() -> Self {
        Self { kept: None, pieces: Vec::new(), aside: Vec::new() }
    }
}

impl<P: Piece> Pauses<P> {
    /// Whether there was none.
    pub fn is_empty(&self) -> bool {
        self.kept.is_none()
    }

    /// Adds a pause, and returns the speed alone from then on; `q` is the quantile of answers.
    ///
    /// A certainly slower pause may have been disturbed: it is set aside until enough in a row agree. A certainly
    /// faster one counts at once, because no program exceeds its speed alone. All others accumulate, and replace the
    /// kept value once they are as precise.
    pub fn note(&mut self, pause: Vec<P>, q: f64) -> Option<f64> {
        let Some(now) = Measurement::of(&pause, q) else { return self.kept.map(|kept| kept.speed) };
        let Some(kept) = self.kept else {
            (self.pieces, self.kept) = (pause, Some(now));
            return Some(now.speed);
        };
        if now.interval[1] < kept.interval[0] {
            self.aside.push(pause);
            if self.aside.len() >= ANOTHER {
                self.pieces = std::mem::take(&mut self.aside).into_iter().flatten().collect();
                self.kept = Measurement::of(&self.pieces, q);
            }
        } else if now.interval[0] > kept.interval[1] {
            (self.pieces, self.kept) = (pause, Some(now));
            self.aside.clear();
        } else {
            self.aside.clear();
            self.pieces.extend(pause);
            let all = Measurement::of(&self.pieces, q);
            self.kept = all.filter(|all| all.width() <= (kept.width() * AS_GOOD).max(NARROW)).or(self.kept);
        }
        self.pieces.drain(..self.pieces.len().saturating_sub(MOST));
        self.kept.map(|kept| kept.speed)
    }
}

impl Pauses<f64> {
    /// Adds a speed alone that the controller keeps itself, with the speed of the pause: only the interval is needed.
    pub fn follow(&mut self, alone: f64, speed: Option<f64>) {
        if let Some(speed) = speed {
            // A value that the controller took directly, not as one of several, is independent of earlier ones.
            let anew = self.kept.is_some_and(|kept| kept.speed.to_bits() != alone.to_bits());
            if anew && speed.to_bits() == alone.to_bits() {
                self.pieces.clear();
            }
            self.pieces.push(speed);
            self.pieces.drain(..self.pieces.len().saturating_sub(MOST));
            self.kept = Measurement::of(&self.pieces, 0.0);
        }
        self.kept = self.kept.map(|kept| {
            let [low, high] = kept.interval;
            Measurement { speed: alone, interval: [low.min(alone), high.max(alone)], ..kept }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Twelve pieces of 25 answers, all of about this many milliseconds.
    fn pause(ms: f64) -> Vec<Histogram> {
        let piece = |i: u32| {
            let low = ms * 1e6 * (1.0 + f64::from(i % 4) / 50.0);
            Histogram::new([(low, low * 1.01, 25).into()])
        };
        (0..12).map(piece).collect()
    }

    fn ms(pauses: &mut Pauses<Histogram>, pause: Vec<Histogram>) -> f64 {
        (1e3 / pauses.note(pause, 0.99).unwrap()).round()
    }

    /// 21 ms, then once 59 ms: the pause was disturbed. Three times 59 ms: it is another load.
    /// Promise qos/baseline: The speed alone is measured again when the load may have changed, and only a better
    /// measurement replaces it.
    #[test]
    fn a_disturbed_pause_does_not_move_the_speed_alone() {
        let mut pauses = Pauses::default();
        let told: Vec<f64> = [21.0, 59.0, 21.0, 59.0, 59.0, 59.0, 21.0].map(|it| ms(&mut pauses, pause(it))).to_vec();
        assert_eq!(told, [22.0, 22.0, 22.0, 22.0, 22.0, 63.0, 22.0]);
        let [slow, fast] = pauses.kept.unwrap().told().unwrap().map(|speed| 1e3 / speed);
        assert!(21.0 <= fast && fast <= slow && slow <= 22.5, "{slow} {fast}");
        ms(&mut pauses, pause(59.0));
        let text = serde_json::to_string(&pauses).unwrap();
        assert_eq!(serde_json::from_str::<Pauses<Histogram>>(&text).unwrap(), pauses);
    }

    /// A pause of which some moments are slow is not surely slower, and tells less.
    /// Holds qos/baseline.
    #[test]
    fn what_tells_less_replaces_nothing() {
        let mut pauses = Pauses::default();
        ms(&mut pauses, pause(21.0));
        let mut mixed = pause(21.0);
        mixed.truncate(11);
        mixed.extend(pause(59.0).into_iter().take(1));
        assert_eq!(ms(&mut pauses, mixed), 22.0);
    }

    /// Holds qos/baseline.
    #[test]
    fn readings_are_kept_alike() {
        let mut pauses = Pauses::default();
        let mut note = |speeds: [f64; 3]| pauses.note(speeds.to_vec(), 0.0).unwrap();
        assert!((note([100.0, 101.0, 99.0]) - 100.0).abs() < 1e-9);
        assert!((note([50.0, 51.0, 49.0]) - 100.0).abs() < 1e-9, "disturbed");
        assert!((note([100.5, 101.0, 99.0]) - 100.08).abs() < 0.01, "more readings tell more");
        assert!((note([200.0, 201.0, 199.0]) - 200.0).abs() < 1e-9, "surely faster");
        assert!(pauses.kept.unwrap().told().is_none(), "three readings have no interval");
    }
}
