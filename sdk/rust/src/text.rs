//! Keeping text within limits.

/// Cuts `text` to about `limit` bytes: the head and the tail stay, and a line between them says
/// how much was left out. Text within the limit comes back as it is.
///
/// ```
/// let cut = fulgurite_sdk::harness::clip(&"x".repeat(5_000), 100);
/// assert!(cut.len() < 200 && cut.contains("4900 bytes left out"));
/// ```
pub fn clip(text: &str, limit: usize) -> String {
    if text.len() <= limit {
        return text.to_string();
    }
    let head = text.floor_char_boundary(limit / 2);
    let tail = text.ceil_char_boundary(text.len() - (limit - limit / 2));
    let (start, rest) = text.split_at(head);
    let end = rest.get(tail - head..).unwrap_or_default();
    format!("{start}\n[... {} bytes left out ...]\n{end}", tail - head)
}

#[cfg(test)]
mod tests {
    use super::clip;

    #[test]
    fn characters_are_not_split() {
        let cut = clip(&"é".repeat(100), 51);
        assert!(cut.starts_with("éé") && cut.ends_with("éé"));
        assert!(cut.contains("bytes left out"));
    }

    #[test]
    fn short_text_is_untouched() {
        assert_eq!(clip("abc", 3), "abc");
        assert_eq!(clip("", 0), "");
    }
}
