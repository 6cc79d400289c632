//! Writing a recording.

use super::encode::Encoder;
use super::redact::Redactor;
use super::row::End;
use super::{Header, MAGIC, MAX_BLOCK, VERSION, frame};
use cotenant_model::usage::Seen;
use cotenant_model::{Round, Time};
use std::io::{self, Write};
use std::time::Duration;

/// Longest interval between writes, by sample times: the possible loss in a crash.
pub const FLUSH_EVERY: Duration = Duration::from_secs(1);

/// … or when this many unpacked bytes are waiting.
const FLUSH_BYTES: usize = 1 << 20;

/// Bytes reserved for the end mark: a block of one short row.
const END_ROOM: u64 = 128;

/// State of a recording after a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// The round is recorded, or will be with the next write.
    Recording,
    /// The size limit was just reached: the end mark is written, and nothing follows. Reported once.
    LimitReached,
    /// Recording has stopped for a reported reason.
    Stopped,
}

/// Reasons why recording fails or stops. Everything written before stays readable.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The destination fails: a full disk, a closed pipe.
    #[error("writing the recording failed: {0}; free space or record elsewhere")]
    Io(#[from] io::Error),
    /// The limit is too small.
    #[error("a limit of {limit} bytes has no room for the recording's header of {header}; raise --record-limit")]
    Limit {
        /// The limit.
        limit: u64,
        /// Bytes needed for the start of the recording.
        header: u64,
    },
    /// A number that the file format cannot represent.
    #[error(
        "the header cannot be written so that it reads back the same ({0}); give finite numbers in the profile and settings"
    )]
    Header(String),
    /// One round exceeds the size of a block.
    #[error("one round takes {0} bytes, more than the {MAX_BLOCK} of a block; record fewer tasks")]
    TooLarge(usize),
}

/// Writes a recording. After the first error, or at the size limit, it accepts and drops further rounds, so that a run
/// need not check.
#[derive(Debug)]
pub struct RecordWriter<W> {
    out: W,
    limit: u64,
    written: u64,
    rounds: u64,
    encoder: Encoder,
    /// Rows not yet written, and the time of the first one.
    pending: Vec<u8>,
    since: Option<Time>,
    /// The last sample's time and number of tasks, to verify that the next round's `last` is that sample.
    last: Option<(Time, usize)>,
    /// Usage of the machine not yet in a row.
    usage: Option<Seen>,
    packed: Vec<u8>,
    stopped: bool,
}

impl<W: Write> RecordWriter<W> {
    /// Starts a recording of at most `limit` bytes; the header is written at once. If the header says `redacted`, names
    /// are replaced.
    ///
    /// # Errors
    /// If the header does not fit, does not read back, or cannot be written.
    pub fn new(mut out: W, header: &Header, limit: u64) -> Result<Self, WriteError> {
        let mut header = header.clone();
        header.machine = header.machine.figures();
        let redactor = header.redacted.then(|| Redactor::new(&mut header));
        let text = serde_json::to_vec(&header).map_err(|e| WriteError::Header(e.to_string()))?;
        if text.len() > MAX_BLOCK {
            return Err(WriteError::TooLarge(text.len()));
        }
        match serde_json::from_slice::<Header>(&text) {
            Ok(back) if back == header => {}
            Ok(_) => return Err(WriteError::Header("an infinite number would be lost".to_owned())),
            Err(e) => return Err(WriteError::Header(e.to_string())),
        }
        let mut packed = Vec::new();
        frame::pack(&text, &mut packed);
        let mut start = MAGIC.to_vec();
        start.extend_from_slice(&VERSION.to_le_bytes());
        start.extend_from_slice(&packed);
        let written = start.len() as u64;
        if written + END_ROOM > limit {
            return Err(WriteError::Limit { limit, header: written });
        }
        frame::write_all(&mut out, &start)?;
        Ok(Self {
            out,
            limit,
            written,
            rounds: 0,
            encoder: Encoder::new(redactor),
            pending: Vec::new(),
            since: None,
            last: None,
            usage: None,
            packed,
            stopped: false,
        })
    }

    /// Takes the current usage of the machine; the next row contains it.
    pub fn used(&mut self, usage: &Seen) {
        self.usage = Some(usage.clone());
    }

    /// Records a round as [`cotenant_model::host::drive`] shows it: `last` is the previous round's sample. If it is not
    /// (by its time and number of tasks), the round is recorded as a new base.
    ///
    /// # Errors
    /// Once, if writing fails; later rounds are dropped.
    pub fn round(&mut self, round: &Round<'_>) -> Result<Status, WriteError> {
        if self.stopped {
            return Ok(Status::Stopped);
        }
        if self.last != Some((round.last.at, round.last.tasks.len())) {
            self.encoder.sample(&mut self.pending, None, round.last);
            self.encoder.close(&mut self.pending);
            if self.pending.len() > FLUSH_BYTES {
                let status = self.flush()?;
                if status != Status::Recording {
                    return Ok(status);
                }
            }
        }
        let start = self.pending.len();
        self.encoder.sample(&mut self.pending, Some(round.last), round.sample);
        if let Some(decision) = round.decision {
            self.encoder.decision(&mut self.pending, round.rule, decision, round.orders, round.outcomes);
        }
        if let Some(usage) = self.usage.take() {
            self.encoder.usage(&mut self.pending, &usage);
        }
        self.encoder.close(&mut self.pending);
        let length = self.pending.len() - start;
        if length > MAX_BLOCK {
            self.stopped = true;
            return Err(WriteError::TooLarge(length));
        }
        self.rounds += 1;
        let now = round.sample.at;
        self.last = Some((now, round.sample.tasks.len()));
        let since = *self.since.get_or_insert(now);
        // A round before a long wait is written before the wait.
        let next = round.decision.map_or(now, |decision| decision.wake_at.max(now));
        if next - since >= FLUSH_EVERY || self.pending.len() >= FLUSH_BYTES {
            return self.flush();
        }
        Ok(Status::Recording)
    }

    /// Writes the waiting rows.
    ///
    /// # Errors
    /// Once, if writing fails.
    pub fn flush(&mut self) -> Result<Status, WriteError> {
        if self.stopped {
            return Ok(Status::Stopped);
        }
        self.since = None;
        if self.pending.is_empty() {
            return Ok(Status::Recording);
        }
        if self.pending.len() > MAX_BLOCK {
            self.stopped = true;
            return Err(WriteError::TooLarge(self.pending.len()));
        }
        frame::pack(&self.pending, &mut self.packed);
        self.pending.clear();
        if self.written + self.packed.len() as u64 + END_ROOM > self.limit {
            self.end(End::Limit)?;
            return Ok(Status::LimitReached);
        }
        self.put()?;
        Ok(Status::Recording)
    }

    /// Ends the recording and returns the destination.
    ///
    /// # Errors
    /// If writing fails now; earlier failures were reported.
    pub fn finish(mut self) -> Result<W, WriteError> {
        self.flush()?;
        if !self.stopped {
            self.end(End::Finished)?;
        }
        Ok(self.out)
    }

    /// Bytes written so far.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Rounds recorded so far.
    pub fn rounds(&self) -> u64 {
        self.rounds
    }

    fn end(&mut self, end: End) -> Result<(), WriteError> {
        let at = self.last.map_or(Time::default(), |(at, _)| at);
        frame::pack(&self.encoder.end(at, end, self.usage.as_ref()), &mut self.packed);
        if self.written + self.packed.len() as u64 > self.limit {
            frame::pack(&self.encoder.end(at, end, None), &mut self.packed); // space for this was reserved
        }
        self.put()?;
        self.stopped = true;
        Ok(())
    }

    fn put(&mut self) -> Result<(), WriteError> {
        if let Err(e) = frame::write_all(&mut self.out, &self.packed) {
            self.stopped = true;
            return Err(e.into());
        }
        self.written += self.packed.len() as u64;
        Ok(())
    }
}
