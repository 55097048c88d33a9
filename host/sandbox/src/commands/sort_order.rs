//! How `sort` compares keys.

use std::borrow::Cow;
use std::cmp::Ordering;

/// How keys are compared.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Order {
    pub(super) numeric: bool,
    pub(super) general: bool,
    pub(super) human: bool,
    pub(super) version: bool,
    pub(super) month: bool,
    pub(super) reverse: bool,
    pub(super) fold: bool,
    pub(super) blanks: bool,
    pub(super) dictionary: bool,
}

impl Order {
    pub(super) fn letter(&mut self, letter: u8) -> bool {
        match letter {
            b'n' => self.numeric = true,
            b'g' => self.general = true,
            b'h' => self.human = true,
            b'V' => self.version = true,
            b'M' => self.month = true,
            b'r' => self.reverse = true,
            b'f' => self.fold = true,
            b'b' => self.blanks = true,
            b'd' => self.dictionary = true,
            _ => return false,
        }
        true
    }
}

pub(super) fn is_blank(byte: u8) -> bool {
    byte == b' ' || byte == b'\t'
}

/// What a key is compared by.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Value<'a> {
    Text(Cow<'a, [u8]>),
    Number(i64, Vec<u8>),
    Sized(i64, usize, Vec<u8>),
    Month(usize),
    Version(Version<'a>),
}

/// Compared by the values of the numbers in it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Version<'a>(&'a [u8]);

impl PartialEq for Version<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Version<'_> {}

impl PartialOrd for Version<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Version<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        version(self.0, other.0)
    }
}

/// What a key is compared by in this order.
pub(super) fn value(text: &[u8], order: Order) -> Value<'_> {
    let blanks = text.iter().take_while(|byte| is_blank(**byte)).count();
    let trimmed = text.get(blanks..).unwrap_or_default();
    if order.numeric {
        let (size, digits) = numeric(trimmed);
        return Value::Number(size, digits);
    }
    if order.general {
        let number = super::parse_number::<f64>(trimmed).unwrap_or(f64::NEG_INFINITY);
        // The bits of a number, so turned that they compare as integers.
        let bits = number.to_bits() as i64;
        let turned = if bits < 0 { bits ^ i64::MAX } else { bits };
        return Value::Number(turned, Vec::new());
    }
    if order.human {
        let (sign, unit, digits) = human(trimmed);
        return Value::Sized(sign, unit, digits);
    }
    if order.month {
        return Value::Month(month(trimmed));
    }
    if order.version {
        return Value::Version(Version(text));
    }
    let text = if order.blanks { trimmed } else { text };
    if !order.fold && !order.dictionary {
        return Value::Text(Cow::Borrowed(text));
    }
    let mut text = text.to_vec();
    if order.dictionary {
        text.retain(|byte| byte.is_ascii_alphanumeric() || is_blank(*byte));
    }
    if order.fold {
        text.make_ascii_uppercase();
    }
    Value::Text(Cow::Owned(text))
}

/// A number of any length as something that compares: sign and size, digits, fraction.
fn numeric(text: &[u8]) -> (i64, Vec<u8>) {
    let (negative, digits) = match text.strip_prefix(b"-") {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let whole = digits.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let rest = digits.get(whole..).unwrap_or_default();
    let fraction = match rest.strip_prefix(b".") {
        Some(rest) => rest.iter().take_while(|byte| byte.is_ascii_digit()).count(),
        None => 0,
    };
    let whole = digits.get(..whole).unwrap_or_default();
    let whole: Vec<u8> = whole.iter().copied().skip_while(|digit| *digit == b'0').collect();
    let mut fraction: Vec<u8> = rest.iter().skip(1).take(fraction).copied().collect();
    while fraction.last() == Some(&b'0') {
        fraction.pop();
    }
    let size = i64::try_from(whole.len()).unwrap_or(i64::MAX);
    if whole.is_empty() && fraction.is_empty() {
        return (0, Vec::new());
    }
    let mut all = [whole, fraction].concat();
    if negative {
        // Larger sizes come first, and so do larger digits; the end of a number comes last.
        all.iter_mut().for_each(|digit| *digit = 255 - *digit);
        all.push(255);
        return (-size - 1, all);
    }
    (size + 1, all)
}

fn human(text: &[u8]) -> (i64, usize, Vec<u8>) {
    let suffix = text.iter().find(|byte| !byte.is_ascii_digit() && !matches!(byte, b'.' | b'-'));
    let unit = suffix
        .and_then(|suffix| b"KMGTPEZY".iter().position(|unit| unit.eq_ignore_ascii_case(suffix)))
        .map_or(0, |index| index + 1);
    let (size, digits) = numeric(text);
    (size.signum(), unit, [size.to_be_bytes().to_vec(), digits].concat())
}

fn month(text: &[u8]) -> usize {
    let name = text.get(..3).unwrap_or_default().to_ascii_uppercase();
    let months =
        ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"];
    months.iter().position(|month| month.as_bytes() == name).map_or(0, |index| index + 1)
}

/// Compares runs of digits by their value.
fn version(mut left: &[u8], mut right: &[u8]) -> Ordering {
    let digits = |text: &[u8]| text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    loop {
        match (left, right) {
            ([], []) => return Ordering::Equal,
            ([], _) => return Ordering::Less,
            (_, []) => return Ordering::Greater,
            ([first, left_rest @ ..], [second, right_rest @ ..]) => {
                if first.is_ascii_digit() && second.is_ascii_digit() {
                    let (one, two) = (digits(left), digits(right));
                    let order = numeric(left.get(..one).unwrap_or_default())
                        .cmp(&numeric(right.get(..two).unwrap_or_default()));
                    if order != Ordering::Equal {
                        return order;
                    }
                    left = left.get(one..).unwrap_or_default();
                    right = right.get(two..).unwrap_or_default();
                } else {
                    if first != second {
                        return first.cmp(second);
                    }
                    left = left_rest;
                    right = right_rest;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_any_length_compare_by_value() {
        let ordered = [
            "-100000000000000000000",
            "-10",
            "-9.5",
            "-9",
            "-0.5",
            "0",
            "0.05",
            "0.5",
            "1",
            "9",
            "10",
            "1e9x",
        ];
        // `1e9x` is 1 to a numeric sort, so it does not belong in the order.
        for pair in ordered[..11].windows(2) {
            let (left, right) = (numeric(pair[0].as_bytes()), numeric(pair[1].as_bytes()));
            assert!(left < right, "{pair:?}");
        }
        assert_eq!(numeric(b"007"), numeric(b"7.0"));
        assert_eq!(numeric(b"x"), numeric(b"0"));
    }

    #[test]
    fn versions_compare_by_their_numbers() {
        assert_eq!(version(b"v1.9", b"v1.10"), Ordering::Less);
        assert_eq!(version(b"a2", b"a2"), Ordering::Equal);
    }
}
