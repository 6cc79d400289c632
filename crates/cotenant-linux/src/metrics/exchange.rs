//! One question and one answer in HTTP/1.1, on a connection that stays: as little as it takes to know when the answer is complete.

use std::io::{self, BufRead, Read, Write};

/// Longer answers, and longer heads of answers, are refused, bytes.
const MOST: u64 = 16 << 20;
const LONGEST_HEAD: u64 = 64 << 10;

/// The question for a path of a server.
pub fn question(host: &str, path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: cotenant\r\nAccept: */*\r\n\r\n").into_bytes()
}

/// Reads an answer to its end; whether the connection stays.
pub fn answer(from: &mut impl BufRead) -> io::Result<bool> {
    let head = head(from)?;
    let mut lines = head.lines();
    let status = lines.next().unwrap_or_default();
    let mut words = status.split(' ');
    let version = words.next().unwrap_or_default();
    let code = words.next().and_then(|code| code.parse::<u16>().ok());
    let (true, Some(code)) = (version.starts_with("HTTP/1."), code) else {
        return Err(wrong("it speaks no HTTP/1.1"));
    };
    if !(200..400).contains(&code) {
        return Err(wrong(format!(
            "it answers with status {code}; name a path that it serves, as in http:PORT/PATH:p99"
        )));
    }
    let field = |name: &str| {
        let mut fields = head.lines().skip(1).filter_map(|line| line.split_once(':'));
        fields.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim().to_ascii_lowercase())
    };
    let stays = version != "HTTP/1.0" && field("connection").is_none_or(|value| value != "close");
    if field("transfer-encoding").is_some_and(|value| value.ends_with("chunked")) {
        chunks(from)?;
        return Ok(stays);
    }
    match field("content-length") {
        Some(length) => {
            let length = length.parse().map_err(|_| wrong("the length of its answer is no number"))?;
            skip(from, length)?;
            Ok(stays)
        }
        None if matches!(code, 204 | 304) => Ok(stays),
        None => {
            // Its end is the end of the connection.
            let got = io::copy(&mut from.by_ref().take(MOST + 1), &mut io::sink())?;
            if got > MOST { Err(long()) } else { Ok(false) }
        }
    }
}

/// All lines up to the empty one.
fn head(from: &mut impl BufRead) -> io::Result<String> {
    let mut head = Vec::new();
    let mut limited = from.by_ref().take(LONGEST_HEAD);
    loop {
        let before = head.len();
        limited.read_until(b'\n', &mut head)?;
        match &head[before..] {
            [] if before == 0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            b"\r\n" | b"\n" => return Ok(String::from_utf8_lossy(&head).into_owned()),
            line if line.ends_with(b"\n") => {}
            _ => return Err(wrong("it speaks no HTTP/1.1")),
        }
    }
}

/// The pieces of an answer, and what stands behind them.
fn chunks(from: &mut impl BufRead) -> io::Result<()> {
    let mut all = 0;
    loop {
        let mut line = Vec::new();
        from.by_ref().take(LONGEST_HEAD).read_until(b'\n', &mut line)?;
        let text = String::from_utf8_lossy(&line).into_owned();
        let digits = text.split(';').next().unwrap_or_default().trim();
        let length = u64::from_str_radix(digits, 16).map_err(|_| wrong("a piece of its answer has no length"))?;
        all += length.min(MOST + 1);
        if all > MOST {
            return Err(long());
        }
        if length > 0 {
            skip(from, length)?;
        }
        loop {
            line.clear();
            from.by_ref().take(LONGEST_HEAD).read_until(b'\n', &mut line)?;
            // Behind a piece stands an empty line, behind the last one that of the fields that follow it, mostly none.
            match line.as_slice() {
                b"\r\n" | b"\n" => break,
                [_, ..] if length == 0 && line.ends_with(b"\n") => {}
                _ => return Err(wrong("a piece of its answer has no end")),
            }
        }
        if length == 0 {
            return Ok(());
        }
    }
}

fn skip(from: &mut impl BufRead, length: u64) -> io::Result<()> {
    if length > MOST {
        return Err(long());
    }
    let got = io::copy(&mut from.by_ref().take(length), &mut io::sink())?;
    if got == length { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

fn long() -> io::Error {
    wrong(format!("its answer is longer than {} MiB; name a path with a short one", MOST >> 20))
}

fn wrong(why: impl Into<String>) -> io::Error {
    io::Error::other(why.into())
}

/// Asks, and waits for the whole answer; whether the connection stays.
pub fn ask(on: &mut io::BufReader<impl Read + Write>, question: &[u8]) -> io::Result<bool> {
    on.get_mut().write_all(question)?;
    answer(on)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers one behind the other; whether the connection stays after each.
    fn read(text: &str) -> Vec<bool> {
        let mut from = text.as_bytes();
        let mut stays = Vec::new();
        while !from.is_empty() {
            stays.push(answer(&mut from).unwrap_or_else(|why| panic!("{why}: {text}")));
        }
        stays
    }

    #[test]
    fn answers_end_where_they_say() {
        let sized = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
        let chunked =
            "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n5;x=y\r\nhello\r\n1\r\n!\r\n0\r\nA: b\r\n\r\n";
        let nothing = "HTTP/1.1 204 No Content\r\n\r\n";
        let last = "HTTP/1.1 302 Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        assert_eq!(read(&[sized, chunked, nothing, sized, last].concat()), [true, true, true, true, false]);
        assert_eq!(read("HTTP/1.1 200 OK\r\n\r\nup to the end"), [false]);
        assert_eq!(read("HTTP/1.0 200 OK\nContent-Length: 1\n\nx"), [false]);
    }

    #[test]
    fn what_is_no_answer_says_so() {
        for (text, why) in [
            ("", "end of file"),
            ("+PONG\r\n\r\n", "speaks no HTTP"),
            ("HTTP/1.1 200 OK\r\nContent-Length: 5", "speaks no HTTP"),
            ("HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", "status 503"),
            ("HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", "no number"),
            ("HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n", "longer than 16 MiB"),
            ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe", "end of file"),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffff\r\n", "longer than 16 MiB"),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nxy\r\n", "has no end"),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nhello\r\n", "no length"),
        ] {
            let error = answer(&mut text.as_bytes()).expect_err(text).to_string();
            assert!(error.contains(why) && !error.contains('\n'), "{text}: {error}");
        }
    }
}
