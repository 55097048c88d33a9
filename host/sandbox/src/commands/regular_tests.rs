//! Tests of the translation.

use proptest::prelude::*;

use super::*;

fn compile(pattern: &str, options: Options) -> Result<Regular, String> {
    Regular::new(pattern.as_bytes(), options, &mut Meter::new(u64::MAX)).unwrap()
}

fn found(pattern: &str, options: Options, text: &str) -> Option<String> {
    let regex = compile(pattern, options).unwrap();
    let range = regex.find(text.as_bytes(), 0, &mut Meter::new(u64::MAX)).unwrap()?;
    Some(text[range].to_owned())
}

fn basic(pattern: &str, text: &str) -> Option<String> {
    found(pattern, Options::default(), text)
}

fn extended(pattern: &str, text: &str) -> Option<String> {
    found(pattern, Options { extended: true, ..Options::default() }, text)
}

#[test]
fn basic_expressions_escape_their_operators() {
    for (pattern, text, expected) in [
        ("a+", "aa a+", "a+"),
        ("a\\+", "baa", "aa"),
        ("\\(ab\\)*c", "ababc", "ababc"),
        ("a\\{2,3\\}", "aaaa", "aaa"),
        ("*a", "x*a", "*a"),
        ("^*a", "*a", "*a"),
        ("a|b", "a|b", "a|b"),
        ("a\\|b", "b", "b"),
        ("a^b$c", "a^b$c", "a^b$c"),
        ("\\(^a\\)", "a", "a"),
        ("[]a]*", "]a]", "]a]"),
        ("[^]a]", "]b", "b"),
        ("x(y)", "x(y)", "x(y)"),
        ("\\<foo\\>", "xfoo foo", "foo"),
        ("a\\.b", "axb a.b", "a.b"),
        ("{", "{", "{"),
    ] {
        assert_eq!(basic(pattern, text).as_deref(), Some(expected), "{pattern}");
    }
}

#[test]
fn extended_expressions_do_not() {
    for (pattern, text, expected) in [
        ("a+", "baa", "aa"),
        ("(ab|cd)+", "abcd", "abcd"),
        ("a{2}", "aaa", "aa"),
        ("a{,2}b", "aab", "aab"),
        ("a\\+", "a+", "a+"),
        ("[[:digit:]]+", "ab12", "12"),
        ("x{", "x{", "x{"),
        ("a|abc", "abc", "abc"),
        ("\\bfoo\\b", "a foo", "foo"),
        ("[a\\]+", "a\\", "a\\"),
        ("()a", "a", "a"),
        ("a**", "aa", "aa"),
        ("a+?", "aa", "aa"),
    ] {
        assert_eq!(extended(pattern, text).as_deref(), Some(expected), "{pattern}");
    }
}

#[test]
fn what_is_not_offered_is_named() {
    for (pattern, named) in [
        ("\\(a\\)\\1", "back references"),
        ("[[.a.]]", "collating"),
        ("\\(a", "Unmatched ("),
        ("a\\)", "Unmatched )"),
        ("[a", "Unmatched ["),
        ("a\\{1001,2000\\}\\{900\\}", "too big"),
        ("a\\{99999999999999999999\\}", "too big"),
        ("a\\", "Trailing backslash"),
        ("[[:nope:]]", "class name"),
        ("[z-a]", "range"),
    ] {
        let message = compile(pattern, Options::default()).unwrap_err();
        assert!(message.contains(named), "{pattern}: {message}");
    }
}

#[test]
fn catastrophic_expressions_are_linear_or_refused() {
    let text = vec![b'a'; 100_000];
    for pattern in ["(a*)*b", "(a+)+$x", "(a|a)*b", "(a|aa)+$b", "((a{1,30}){1,30}){1,30}b"] {
        let options = Options { extended: true, ..Options::default() };
        if let Ok(regex) = compile(pattern, options) {
            assert!(!regex.is_match(&text, &mut Meter::new(u64::MAX)).unwrap());
        }
    }
    let deep = "(".repeat(10_000) + &")".repeat(10_000);
    assert!(compile(&deep, Options { extended: true, ..Options::default() }).is_err());
}

#[test]
fn matching_is_charged_by_length_and_size() {
    let cost = |pattern: &str, length: usize| {
        let options = Options { extended: true, ..Options::default() };
        let regex = compile(pattern, options).unwrap();
        let mut meter = Meter::new(u64::MAX);
        regex.is_match(&vec![b'x'; length], &mut meter).unwrap();
        meter.used()
    };
    assert!(cost("a", 1_000) > 1_000);
    assert!(cost("a", 10_000) > 9 * cost("a", 1_000));
    assert!(cost("(a{30}){30}", 1_000) > 100 * cost("a", 1_000));
}

proptest! {
    #[test]
    fn no_pattern_panics(pattern in "[ab*+?{}()|\\[\\]^$.,0-9\\\\:-]{0,24}", extended: bool) {
        let options = Options { extended, ..Options::default() };
        if let Ok(regex) = compile(&pattern, options) {
            regex.is_match(b"aab1,", &mut Meter::new(u64::MAX)).unwrap();
        }
    }

    #[test]
    fn fixed_text_matches_itself(bytes: Vec<u8>) {
        let options = Options { fixed: true, whole: true, ..Options::default() };
        let mut meter = Meter::new(u64::MAX);
        let regex = Regular::new(&bytes, options, &mut meter).unwrap().unwrap();
        prop_assert!(regex.is_match(&bytes, &mut meter).unwrap());
    }
}
