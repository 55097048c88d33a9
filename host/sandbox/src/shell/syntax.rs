//! From text to a plan: brush-parser's grammar behind guards.
//!
//! The parser is recursive and backtracks, and the text comes from a model. What is bounded, and
//! why:
//! - *length* and *tokens*, so that work is bounded at all;
//! - *parentheses nested in each other*: an `((` that turns out to be no arithmetic is tried both
//!   ways, so time doubles with each one that stays open;
//! - *`case` words*: an arm without `;;` is parsed twice, and so are the arms within it;
//! - *openers* (`(`, `{`, `if`, …) as a bound of the recursion; text with many of them is parsed
//!   on a thread of its own with a large stack;
//! - *numbers before `<` and `>`*, which the parser unwraps.
//!
//! Should the parser panic all the same, that is a syntax error of the line.

use brush_parser::{ParserOptions, Token, TokenizerOptions};

use super::plan::{List, Refusal};
use super::{lower, meter, scan};

/// Longest text that is parsed.
const TEXT_BYTES: usize = 1 << 20;
/// Most tokens in one text.
const TOKENS: usize = 20_000;
/// Most parentheses that are open at once.
const OPEN_PARENTHESES: usize = 10;
/// Most `case` words.
const CASES: usize = 6;
/// Most openers of anything.
const OPENERS: usize = 1_000;
/// Most substitutions and expansions anywhere in the text, quoted or not.
const DOLLARS: usize = 10_000;
/// Openers up to which the caller's stack is enough.
const SHALLOW: usize = 24;
/// The stack of the parsing thread; only touched pages count.
const STACK_BYTES: usize = 64 << 20;

/// Parses text at some depth of nesting.
#[derive(Debug, Clone, Default)]
pub(crate) struct Syntax {
    depth: usize,
}

/// What parsing `text` is charged, before it is done.
pub(crate) fn cost(text: &[u8]) -> u64 {
    let cases = text.windows(4).filter(|window| window == b"case").count().min(CASES);
    (text.len() as u64).saturating_mul(50 << cases).saturating_add(meter::STEP)
}

/// Parses a whole line or script.
pub(crate) fn parse(text: &[u8]) -> Result<List, Refusal> {
    if text.len() > TEXT_BYTES {
        return Err(Refusal::unsupported(format!("a line longer than {TEXT_BYTES} bytes")));
    }
    if dollars(text) > DOLLARS {
        return Err(Refusal::unsupported(format!("more than {DOLLARS} expansions in one line")));
    }
    if openers(text) <= SHALLOW {
        return parse_here(text);
    }
    std::thread::scope(|scope| {
        std::thread::Builder::new()
            .stack_size(STACK_BYTES)
            .spawn_scoped(scope, || parse_here(text))
            .map_err(|_| {
                Refusal::unsupported("a line this deep while the host is short of threads")
            })
            .and_then(|thread| thread.join().unwrap_or_else(|_| Err(gave_up())))
    })
}

fn parse_here(text: &[u8]) -> Result<List, Refusal> {
    std::panic::catch_unwind(|| Syntax::default().parse(text)).unwrap_or_else(|_| Err(gave_up()))
}

fn gave_up() -> Refusal {
    Refusal::syntax("the parser gave up on this line")
}

/// An upper bound of how deep the parsers can recurse.
fn openers(text: &[u8]) -> usize {
    let brackets = text.iter().filter(|byte| matches!(byte, b'(' | b'{' | b'[' | b'!')).count();
    let words = [&b"if"[..], b"for", b"while", b"until", b"case", b"coproc", b"function"];
    let count = |word: &&[u8]| text.windows(word.len()).filter(|window| window == word).count();
    brackets + words.iter().map(count).sum::<usize>()
}

fn dollars(text: &[u8]) -> usize {
    text.windows(2).filter(|pair| matches!(pair, [b'$', b'(' | b'{' | b'['])).count()
}

impl Syntax {
    /// One level further in.
    pub(crate) fn deeper(&self) -> Result<Self, Refusal> {
        Ok(Self { depth: scan::deeper(self.depth)? })
    }

    /// Parses text at this depth.
    pub(crate) fn parse(&self, text: &[u8]) -> Result<List, Refusal> {
        let text = std::str::from_utf8(text)
            .map_err(|_| Refusal::syntax("the line is not valid UTF-8"))?;
        if text.contains('\0') {
            return Err(Refusal::syntax("the line holds a NUL"));
        }
        let options = ParserOptions {
            enable_extended_globbing: false,
            tilde_expansion_at_word_start: false,
            ..ParserOptions::default()
        };
        let tokenizer = TokenizerOptions { enable_extended_globbing: false, ..Default::default() };
        let tokens = brush_parser::uncached_tokenize_str(text, &tokenizer)
            .map_err(|error| Refusal::syntax(error.to_string()))?;
        guard(&tokens)?;
        let tokens = part_parentheses(split_empty_clauses(tokens));
        let program = brush_parser::parse_tokens(&tokens, &options).map_err(|error| {
            let near = near(&error, &tokens);
            Refusal::syntax(format!("{error}{near}"))
        })?;
        lower::program(&program, self)
    }
}

/// `for ((;;))`: the tokenizer reads `;;` as the end of an arm of `case`.
fn split_empty_clauses(tokens: Vec<Token>) -> Vec<Token> {
    let mut split = Vec::with_capacity(tokens.len());
    // How much of `for ((` stands before this token.
    let mut head = 0;
    for token in tokens {
        head = match (&token, head) {
            (Token::Word(word, _), _) if word == "for" => 1,
            (Token::Operator(operator, _), 1 | 2) if operator == "(" => head + 1,
            (Token::Operator(operator, _), 3) if operator == ")" => 0,
            (_, 3) => 3,
            _ => 0,
        };
        match token {
            Token::Operator(operator, place) if head == 3 && operator == ";;" => {
                split.push(Token::Operator(";".to_owned(), place.clone()));
                split.push(Token::Operator(";".to_owned(), place));
            }
            token => split.push(token),
        }
    }
    split
}

/// `( (`: the grammar does not look at blanks and would try `((`. A newline may stand there, except
/// within `[[ ]]`, where no `((` can.
fn part_parentheses(tokens: Vec<Token>) -> Vec<Token> {
    let mut parted: Vec<Token> = Vec::with_capacity(tokens.len());
    let mut in_test = false;
    for token in tokens {
        match (&token, parted.last()) {
            (Token::Word(word, _), _) if word == "[[" => in_test = true,
            (Token::Word(word, _), _) if word == "]]" => in_test = false,
            (Token::Operator(operator, place), Some(Token::Operator(before, end)))
                if !in_test
                    && operator == "("
                    && before == "("
                    && end.end.index < place.start.index =>
            {
                parted.push(Token::Operator("\n".to_owned(), place.clone()));
            }
            _ => {}
        }
        parted.push(token);
    }
    parted
}

/// Names the token that a syntax error is at.
fn near(error: &brush_parser::ParseError, tokens: &[Token]) -> String {
    let brush_parser::ParseError::ParsingNear(position) = error else { return String::new() };
    tokens
        .iter()
        .find(|token| token.location().start.index >= position.index)
        .map(|token| format!(" near `{}`", token.to_str().escape_default()))
        .unwrap_or_default()
}

/// Refuses token sequences that the grammar cannot take in bounded time.
fn guard(tokens: &[Token]) -> Result<(), Refusal> {
    if tokens.len() > TOKENS {
        return Err(Refusal::unsupported(format!("a line of more than {TOKENS} words")));
    }
    let (mut open, mut cases, mut openers) = (0_usize, 0_usize, 0_usize);
    for (index, token) in tokens.iter().enumerate() {
        match token {
            Token::Operator(operator, _) => match operator.as_str() {
                "(" => {
                    open += 1;
                    openers += 1;
                }
                ")" => open = open.saturating_sub(1),
                _ => {}
            },
            Token::Word(word, _) => {
                match word.as_str() {
                    "case" => {
                        cases += 1;
                        openers += 1;
                    }
                    "{" | "!" | "if" | "for" | "while" | "until" | "coproc" | "function" | "[[" => {
                        openers += 1;
                    }
                    "select" => return Err(Refusal::unsupported("select")),
                    _ => {}
                }
                guard_word(token, tokens.get(index + 1))?;
            }
        }
        if open > OPEN_PARENTHESES {
            return Err(Refusal::unsupported(format!(
                "parentheses nested deeper than {OPEN_PARENTHESES}"
            )));
        }
    }
    if cases > CASES {
        return Err(Refusal::unsupported(format!("more than {CASES} `case` commands in one line")));
    }
    if openers > OPENERS {
        return Err(Refusal::unsupported(format!("more than {OPENERS} compound commands")));
    }
    Ok(())
}

fn guard_word(token: &Token, next: Option<&Token>) -> Result<(), Refusal> {
    let word = token.to_str();
    // Only a number that touches the operator is a descriptor, as in `2>`.
    let redirected = next.is_some_and(|next| {
        matches!(next, Token::Operator(operator, _) if operator.starts_with(['<', '>']))
            && token.location().end.index == next.location().start.index
    });
    if redirected && word.len() > 4 && word.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Refusal::unsupported(format!("file descriptor {word}")));
    }
    // What may be the index of an array element goes through the parser's own grammar of words.
    let name = scan::name_length(word.as_bytes());
    let count = |letter: char| word.matches(letter).count();
    if name > 0
        && word.as_bytes().get(name) == Some(&b'[')
        && (word.contains("$(") || word.contains('`') || count('[') > 8 || count('(') > 8)
    {
        return Err(Refusal::unsupported("arrays (a name followed by `[` and a substitution)"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> String {
        match parse(text.as_bytes()) {
            Ok(plan) => panic!("{text} was taken: {plan:?}"),
            Err(Refusal::Unsupported(what) | Refusal::Syntax(what)) => what,
        }
    }

    #[test]
    fn unsupported_constructs_are_named() {
        for (text, named) in [
            ("sleep 1 &", "background"),
            ("a=(1 2)", "arrays"),
            ("echo ${a[0]}", "arrays"),
            ("diff <(ls) <(ls)", "process substitution"),
            ("coproc x { ls; }", "coproc"),
            ("select x in a; do echo; done", "select"),
            ("exec 3>x", "file descriptor 3"),
            ("echo 99999999999>x", "file descriptor"),
            (":(){ :|:& };:", "background"),
            ("time ls", "time"),
        ] {
            assert!(refusal(text).contains(named), "{text}: {}", refusal(text));
        }
    }

    #[test]
    fn hostile_nesting_is_refused_in_bounded_time() {
        for text in [
            "(".repeat(100_000),
            "( ".repeat(1_000),
            "((".repeat(5_000),
            "$(".repeat(50_000),
            "echo ".to_owned() + &"$(".repeat(5_000),
            "echo \"".to_owned() + &"$(a \"".repeat(500),
            "${x:-".repeat(20_000),
            "{ ".repeat(10_000),
            "if ".repeat(10_000),
            "case x in a) ".repeat(5_000),
            "case x in a) ".repeat(6),
            "f() { ".repeat(900),
            "[[ ( ".repeat(9),
            "[[ ".to_owned() + &"! ".repeat(9_000) + "x ]]",
            "a[".repeat(9_000),
            "`".repeat(10_001),
            "a[".repeat(10_000) + "=1",
            "x[$(".repeat(100) + "]=1",
            "<<".repeat(1_000),
            "$((".repeat(1_000),
            "echo $((".to_owned() + &"(".repeat(1_000),
        ] {
            refusal(&text);
        }
    }

    #[test]
    fn deep_but_honest_nesting_is_taken() {
        let nested = format!("{}echo hi{}", "if true; then ".repeat(10), "; fi".repeat(10));
        assert!(parse(nested.as_bytes()).is_ok());
        assert!(parse(b"( ( ( ( echo a; ) ) ) )").is_ok());
        assert!(parse("echo \"$(echo \"$(echo \"$(echo x)\")\")\"".as_bytes()).is_ok());
    }
}
