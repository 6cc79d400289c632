//! Rust's source text as tokens: identifiers and punctuation. Comments and strings are apart.

/// One token of source text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Token {
    /// An identifier or a keyword.
    Word(String),
    /// `::`.
    Path,
    /// Any other character of punctuation.
    Sign(char),
    /// A string, a character or a number: its text does not matter here.
    Literal,
}

impl Token {
    /// Whether this is the word or the sign `text`.
    pub fn is(&self, text: &str) -> bool {
        match self {
            Token::Word(word) => word == text,
            Token::Path => text == "::",
            Token::Sign(sign) => text.len() == 1 && text.starts_with(*sign),
            Token::Literal => false,
        }
    }
}

/// The tokens of a file.
pub fn tokens(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    for (piece, text) in pieces(text) {
        tokens.extend(match piece {
            Piece::Path => Some(Token::Path),
            Piece::Text | Piece::Number => Some(Token::Literal),
            Piece::Word => Some(Token::Word(text.trim_start_matches("r#").to_owned())),
            Piece::Sign => text.chars().next().map(Token::Sign),
            Piece::Comment | Piece::Between => None,
        });
    }
    tokens
}

/// The comments of a file, without their marks, a line for each.
pub fn comments(text: &str) -> String {
    let comments = pieces(text).filter(|(piece, _)| *piece == Piece::Comment);
    comments.map(|(_, text)| text.trim_matches(['/', '!', '*', ' ']).to_owned() + "\n").collect()
}

/// The strings of a file, as a program has them, but for its other escapes and holes.
pub fn strings(text: &str) -> impl Iterator<Item = String> {
    let literals = pieces(text).filter(|(piece, text)| *piece == Piece::Text && text.ends_with(['"', '#']));
    literals.map(|(_, literal)| {
        let inside = literal.trim_start_matches(['b', 'c', 'r', '#']).trim_end_matches('#').trim_matches('"');
        // A backslash at the end of a line takes the white space of the next one with it.
        let mut lines = inside.split("\\\n");
        let mut all = lines.next().unwrap_or_default().to_owned();
        lines.for_each(|line| all.push_str(line.trim_start()));
        all.replace("\\n", "\n")
    })
}

/// A piece of source text.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Piece {
    Comment,
    Path,
    /// A string or a character.
    Text,
    Number,
    Word,
    Sign,
    /// White space and lifetimes.
    Between,
}

/// The pieces of a file, in order.
fn pieces(text: &str) -> impl Iterator<Item = (Piece, &str)> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let first = rest.chars().next()?;
        let (piece, length) = if first.is_whitespace() {
            (Piece::Between, first.len_utf8())
        } else if rest.starts_with("//") {
            (Piece::Comment, rest.find('\n').unwrap_or(rest.len()))
        } else if rest.starts_with("/*") {
            (Piece::Comment, block_comment(rest))
        } else if rest.starts_with("::") {
            (Piece::Path, 2)
        } else if let Some(length) = string(rest) {
            (Piece::Text, length)
        } else if first.is_ascii_digit() {
            (Piece::Number, word(rest))
        } else if first.is_alphabetic() || first == '_' {
            let raw = if rest.starts_with("r#") { 2 } else { 0 };
            (Piece::Word, raw + word(&rest[raw..]))
        } else if first == '\'' {
            // A lifetime is one of the few words that no path contains.
            (Piece::Between, 1 + word(&rest[1..]))
        } else {
            (Piece::Sign, first.len_utf8())
        };
        let (piece_text, after) = rest.split_at(length);
        rest = after;
        Some((piece, piece_text))
    })
}

/// The length of the word or number that `text` begins with.
fn word(text: &str) -> usize {
    text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len())
}

/// The length of the comment that `text` begins with; comments nest.
fn block_comment(text: &str) -> usize {
    let (mut at, mut depth) = (2, 1);
    while depth > 0 && at < text.len() {
        match text.as_bytes()[at..] {
            [b'/', b'*', ..] => (at, depth) = (at + 2, depth + 1),
            [b'*', b'/', ..] => (at, depth) = (at + 2, depth - 1),
            _ => at += 1,
        }
    }
    at
}

/// The length of the string or character that `text` begins with.
fn string(text: &str) -> Option<usize> {
    let body = text.trim_start_matches(['b', 'c']);
    let prefix = text.len() - body.len();
    if let Some(raw) = body.strip_prefix('r') {
        let hashes = raw.len() - raw.trim_start_matches('#').len();
        let inside = raw[hashes..].strip_prefix('"')?;
        let end = format!("\"{}", "#".repeat(hashes));
        let length = inside.find(&end).map_or(inside.len(), |at| at + end.len());
        return (prefix <= 1).then_some(prefix + 1 + hashes + 1 + length);
    }
    let quote = body.chars().next().filter(|c| prefix <= 1 && matches!(c, '"' | '\''))?;
    let mut escaped = false;
    let mut inside = body.char_indices().skip(1);
    let end = inside.find(|(_, c)| {
        let end = *c == quote && !escaped;
        escaped = *c == '\\' && !escaped;
        end
    });
    let end = end.map_or(body.len(), |(at, _)| at + 1);
    // 'a is a lifetime, 'a' and '\n' are characters.
    let character = body[1..].starts_with('\\') || body.chars().nth(2) == Some('\'');
    (quote == '"' || character).then_some(prefix + end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        let word = |token| match token {
            Token::Word(word) => Some(word),
            _ => None,
        };
        tokens(text).into_iter().filter_map(word).collect()
    }

    #[test]
    fn what_is_quoted_or_a_comment_is_no_code() {
        assert_eq!(words("a /* b /* c */ d */ e // f\ng"), ["a", "e", "g"]);
        assert_eq!(words(r##"a("b\"c", r#"d"e"#, b"f", '"', '\'', b'g', c"h") i"##), ["a", "i"]);
        assert_eq!(words("&'static str, 'a: b r#type 1u8 br_x"), ["str", "b", "type", "br_x"][..]);
        assert!(tokens("a::b").get(1).is_some_and(|path| path.is("::")));
    }
}
