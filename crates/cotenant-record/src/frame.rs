//! Blocks: `packed length, raw length, crc32 of both and the payload` as little-endian 32-bit words, then the
//! LZ4-packed payload.
//!
//! The checksum covers the lengths, so that a flipped bit in one is found before the length is used.

use std::io::{self, Read, Write};

/// Longest unpacked payload of a block, bytes. Writer and reader refuse longer ones, which bounds the memory that a
/// damaged or hostile file can claim.
pub const MAX_BLOCK: usize = 64 << 20;

/// Bytes before a block's payload.
const HEAD: usize = 12;

/// Packs `payload` into `packed`, replacing its contents; the result is the whole block. `payload` is at most
/// [`MAX_BLOCK`] long.
pub fn pack(payload: &[u8], packed: &mut Vec<u8>) {
    debug_assert!(payload.len() <= MAX_BLOCK);
    packed.clear();
    packed.resize(HEAD + lz4_flex::block::get_maximum_output_size(payload.len()), 0);
    let length =
        lz4_flex::block::compress_into(payload, &mut packed[HEAD..]).expect("the buffer has the maximum output size");
    packed.truncate(HEAD + length);
    packed[0..4].copy_from_slice(&(length as u32).to_le_bytes());
    packed[4..8].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    let crc = checksum(&packed[0..8], &packed[HEAD..]);
    packed[8..12].copy_from_slice(&crc.to_le_bytes());
}

/// Writes `bytes` and flushes.
pub fn write_all(out: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    out.write_all(bytes)?;
    out.flush()
}

/// The next item in the file.
pub enum Next {
    /// A good block of this many bytes in the file; its payload is in the caller's buffer.
    Block(u64),
    /// The end of the file, directly after the last block.
    End,
    /// An invalid block, with the reason.
    Bad(String),
}

/// Reads the next block; its payload replaces the contents of `payload`.
pub fn read(input: &mut impl Read, payload: &mut Vec<u8>) -> Next {
    let mut head = [0; HEAD];
    match fill(input, &mut head) {
        Ok(0) => return Next::End,
        Ok(HEAD) => {}
        Ok(_) => return Next::Bad("cut inside the head of a block".to_owned()),
        Err(e) => return Next::Bad(format!("reading failed: {e}")),
    }
    let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let (packed_length, raw_length, crc) = (word(0) as usize, word(4) as usize, word(8));
    if raw_length > MAX_BLOCK || packed_length > lz4_flex::block::get_maximum_output_size(raw_length) {
        return Next::Bad(format!("a block claims {packed_length} bytes that unpack to {raw_length}"));
    }
    // `take` grows the buffer only as bytes arrive.
    let mut packed = Vec::new();
    match input.take(packed_length as u64).read_to_end(&mut packed) {
        Ok(n) if n == packed_length => {}
        Ok(n) => return Next::Bad(format!("cut inside a block: {n} of {packed_length} bytes are there")),
        Err(e) => return Next::Bad(format!("reading failed: {e}")),
    }
    if checksum(&head[0..8], &packed) != crc {
        return Next::Bad("the checksum of a block does not match".to_owned());
    }
    payload.clear();
    payload.resize(raw_length, 0);
    match lz4_flex::block::decompress_into(&packed, payload) {
        Ok(n) if n == raw_length => Next::Block((HEAD + packed_length) as u64),
        Ok(n) => Next::Bad(format!("a block unpacks to {n} bytes instead of {raw_length}")),
        Err(e) => Next::Bad(format!("a block does not unpack: {e}")),
    }
}

/// Fills `buffer` as far as input is available; returns the number of bytes read.
pub fn fill(input: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match input.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(filled)
}

fn checksum(lengths: &[u8], packed: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(lengths);
    hasher.update(packed);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_comes_back() {
        for payload in [vec![], b"a".to_vec(), vec![7; 100_000]] {
            let (mut block, mut back) = (Vec::new(), b"old".to_vec());
            pack(&payload, &mut block);
            assert!(matches!(read(&mut &block[..], &mut back), Next::Block(n) if n == block.len() as u64));
            assert_eq!(back, payload);
        }
    }

    #[test]
    fn absurd_lengths_are_refused_before_anything_is_allocated() {
        let mut head = Vec::new();
        for word in [u32::MAX, u32::MAX, 0] {
            head.extend(word.to_le_bytes());
        }
        let mut payload = Vec::new();
        assert!(matches!(read(&mut &head[..], &mut payload), Next::Bad(why) if why.contains("claims")));
        assert_eq!(payload.capacity(), 0);
    }

    #[test]
    fn every_flipped_bit_is_found() {
        let mut block = Vec::new();
        pack(b"{\"at\":100,\"tasks\":[[1,0,3]]}", &mut block);
        for bit in 0..block.len() * 8 {
            let mut bad = block.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(read(&mut &bad[..], &mut Vec::new()), Next::Bad(_)), "bit {bit}");
        }
    }
}
