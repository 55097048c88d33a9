//! Which known name somebody meant who wrote an unknown one.

/// More slips of the finger than these make another word, and so do those in half of its letters.
const MOST_SLIPS: usize = 3;

/// The known name nearest to what was written, if one is near; of two as near, the first in the
/// alphabet.
pub(crate) fn nearest<'a>(
    written: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let most = MOST_SLIPS.min(written.chars().count() / 2);
    known
        .into_iter()
        .map(|known| (strsim::damerau_levenshtein(written, known), known))
        .min()
        .filter(|(slips, _)| *slips <= most)
        .map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn the_nearest_name_is_found_and_a_far_one_is_not() {
        assert_eq!(nearest("trun", ["turns", "mode"]), Some("turns"));
        assert_eq!(nearest("ab", ["ad", "ac"]), Some("ac"));
        assert_eq!(nearest("temperature", ["turns", "mode"]), None);
        assert_eq!(nearest("a", []), None);
        assert_eq!(nearest("rate", ["parts"]), None);
        assert_eq!(nearest("stepz", ["seed"]), None);
    }
}
