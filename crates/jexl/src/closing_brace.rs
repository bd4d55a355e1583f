/// Finds the `}` that ends an expression within a longer text, such as one of a macro `${…}`. `text` begins with the
/// expression. Returns the byte of the brace; `None` if there is none.
///
/// Braces inside the expression nest, and those in its texts do not count. In a text with an open quote, which is no
/// expression, the braces in the rest of it count as well, so that such a macro has an end, too.
///
/// ```
/// use millstream_jexl::closing_brace;
///
/// let text = "{a: '}'}} and more";
/// assert_eq!(closing_brace(text).map(|end| &text[..end]), Some("{a: '}'}"));
/// ```
pub fn closing_brace(text: &str) -> Option<usize> {
    find(text, true).or_else(|| find(text, false))
}

fn find(text: &str, skips_texts: bool) -> Option<usize> {
    let (mut depth, mut quote, mut is_escaped) = (0_usize, None, false);
    for (at, byte) in text.bytes().enumerate() {
        match (quote, byte) {
            (Some(_), _) if is_escaped => is_escaped = false,
            (Some(_), b'\\') => is_escaped = true,
            (Some(open), _) if byte == open => quote = None,
            (Some(_), _) => {}
            (None, b'\'' | b'"') if skips_texts => quote = Some(byte),
            (None, b'{') => depth += 1,
            (None, b'}') if depth == 0 => return Some(at),
            (None, b'}') => depth -= 1,
            (None, _) => {}
        }
    }
    None
}
