//! Reading a recording, one round at a time.

use super::decode::{Decoder, Meaning};
use super::row::End;
use super::{Header, MAGIC, RecordError, RecordedRound, Tail, VERSION, frame};
use cotenant_model::usage::Seen;
use std::io::Read;

/// A reader of a recording: an iterator over its rounds. Memory is bounded by one block and two samples for any file
/// length. After the rounds, [`Recording::tail`] gives its end.
#[derive(Debug)]
pub struct Recording<R> {
    input: R,
    header: Header,
    decoder: Decoder,
    block: Vec<u8>,
    /// Start of the next row in the block.
    cursor: usize,
    /// Bytes up to the end of the last completely good block.
    offset: u64,
    /// Length of the current block in the file.
    current: u64,
    rounds: u64,
    tail: Option<Tail>,
}

impl<R: Read> Recording<R> {
    /// Reads the header. Give a buffered reader.
    ///
    /// # Errors
    /// If it is not a recording, too new, or has a damaged header; damage after the header ends the rounds and is
    /// reported by [`Self::tail`].
    pub fn read(mut input: R) -> Result<Self, RecordError> {
        let mut start = [0; 12];
        let length = frame::fill(&mut input, &mut start)?;
        if length < start.len() || start[..8] != MAGIC {
            return Err(RecordError::NotARecording);
        }
        let found = u32::from_le_bytes([start[8], start[9], start[10], start[11]]);
        if !(1..=VERSION).contains(&found) {
            return Err(RecordError::Version { found });
        }
        let mut block = Vec::new();
        let length = match frame::read(&mut input, &mut block) {
            frame::Next::Block(length) => length,
            frame::Next::End => return Err(RecordError::Header("the file ends before it".to_owned())),
            frame::Next::Bad(why) => return Err(RecordError::Header(why)),
        };
        let mut header: Header = serde_json::from_slice(&block).map_err(|e| RecordError::Header(e.to_string()))?;
        header.spell_out();
        Ok(Self {
            input,
            header,
            decoder: Decoder::default(),
            cursor: block.len(),
            block,
            offset: start.len() as u64,
            current: length,
            rounds: 0,
            tail: None,
        })
    }

    /// Facts known at its start.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Its end; `None` until the rounds are over.
    pub fn tail(&self) -> Option<&Tail> {
        self.tail.as_ref()
    }

    /// Usage of the machine before the start and since, according to the rounds read so far; complete at the end mark.
    /// Empty in recordings of earlier versions.
    pub fn usage(&self) -> &Seen {
        &self.decoder.usage
    }

    /// Moves to the next block when the current one is used up.
    fn fill(&mut self) -> Result<(), Tail> {
        while self.cursor >= self.block.len() {
            self.offset += std::mem::take(&mut self.current);
            match frame::read(&mut self.input, &mut self.block) {
                frame::Next::Block(length) => (self.cursor, self.current) = (0, length),
                frame::Next::End => {
                    return Err(self.truncated("there is no end mark (the recorder was killed)".to_owned()));
                }
                frame::Next::Bad(why) => return Err(self.truncated(why)),
            }
        }
        Ok(())
    }

    fn truncated(&self, why: String) -> Tail {
        Tail::Truncated { offset: self.offset, rounds: self.rounds, why }
    }

    fn step(&mut self) -> Result<RecordedRound, Tail> {
        loop {
            self.fill()?;
            let mut rows = &self.block[self.cursor..];
            let meaning = self.decoder.row(&mut rows);
            self.cursor = self.block.len() - rows.len();
            match meaning {
                Ok(Meaning::Base) => {}
                Ok(Meaning::Round(round)) => {
                    self.rounds += 1;
                    return Ok(*round);
                }
                Ok(Meaning::End(End::Finished)) => return Err(Tail::Complete),
                Ok(Meaning::End(End::Limit)) => return Err(Tail::Limit),
                Err(why) => {
                    let by = &self.header.cotenant;
                    return Err(self.truncated(format!("a row is not understood ({why}; recorded by cotenant {by})")));
                }
            }
        }
    }
}

impl<R: Read> Iterator for Recording<R> {
    type Item = RecordedRound;

    fn next(&mut self) -> Option<RecordedRound> {
        if self.tail.is_some() {
            return None;
        }
        match self.step() {
            Ok(round) => Some(round),
            Err(tail) => {
                self.tail = Some(tail);
                None
            }
        }
    }
}
