//! `find`: reads expressions.

use super::find_values::{compare, format, size};
use super::regular::{self, Regular};
use crate::shell::files::Files;
use crate::shell::meter::{Meter, Stop};
use crate::shell::pattern::Pattern;

/// Deepest parentheses and negations.
const DEPTH: usize = 64;

/// An expression.
#[derive(Debug, Clone)]
pub(super) enum Node {
    /// Lists rather than pairs: a long expression is no deep one.
    And(Vec<Node>),
    Or(Vec<Node>),
    Not(Box<Node>),
    /// `,`: all, and the value of the last.
    Each(Vec<Node>),
    True,
    False,
    Name(Pattern),
    Path(Pattern),
    Regex(Regular),
    Kind(Vec<u8>),
    Empty,
    Size {
        compare: Compare,
        size: u64,
        unit: u64,
    },
    /// Changed later than this time.
    Newer(u64),
    Links(Compare, u64),
    Print,
    PrintNull,
    Format(Vec<Part>),
    Delete,
    Prune,
    Quit,
    Exec {
        words: Vec<Vec<u8>>,
        plus: Option<usize>,
    },
}

/// `+n`, `-n`, `n`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Compare {
    More,
    Less,
    Equal,
}

impl Compare {
    pub(super) fn holds(self, value: u64, wanted: u64) -> bool {
        match self {
            Self::More => value > wanted,
            Self::Less => value < wanted,
            Self::Equal => value == wanted,
        }
    }
}

/// A part of `-printf`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Part {
    Text(Vec<u8>),
    Letter(u8),
}

/// Everything that the arguments say.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) starts: Vec<Vec<u8>>,
    pub(super) node: Node,
    pub(super) follow: bool,
    pub(super) follow_starts: bool,
    pub(super) most_depth: usize,
    pub(super) least_depth: usize,
    pub(super) folders_last: bool,
    /// How many `-exec … +` there are.
    pub(super) batches: usize,
}

/// What is wrong: the command ends with status 2 when it is an option that is not offered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Mistake {
    Wrong(String),
    Unsupported(String),
}

pub(super) fn wrong<T>(what: impl Into<String>) -> Result<T, Mistake> {
    Err(Mistake::Wrong(what.into()))
}

/// Reads the arguments.
pub(super) fn parse(
    arguments: &[Vec<u8>],
    files: &Files,
    meter: &mut Meter,
) -> Result<Result<Plan, Mistake>, Stop> {
    let mut rest = arguments;
    let (mut follow, mut follow_starts) = (false, false);
    while let [option, after @ ..] = rest {
        match option.as_slice() {
            b"-L" => (follow, follow_starts) = (true, true),
            b"-H" => (follow, follow_starts) = (false, true),
            b"-P" => (follow, follow_starts) = (false, false),
            _ => break,
        }
        rest = after;
    }
    let is_expression = |word: &Vec<u8>| {
        (word.starts_with(b"-") && word.len() > 1) || matches!(word.as_slice(), b"(" | b"!" | b")")
    };
    let count = rest.iter().position(is_expression).unwrap_or(rest.len());
    let (starts, rest) = rest.split_at_checked(count).unwrap_or((rest, &[]));
    let starts = if starts.is_empty() { vec![b".".to_vec()] } else { starts.to_vec() };
    let mut parser = Parser {
        words: rest,
        files,
        meter,
        stop: None,
        acts: false,
        most_depth: usize::MAX,
        least_depth: 0,
        folders_last: false,
        batches: 0,
        depth: 0,
        syntax: EMACS,
    };
    let node = match parser.words {
        [] => Ok(Node::True),
        _ => parser.comma(),
    };
    if let Some(stop) = parser.stop {
        return Err(stop);
    }
    let node = match node {
        Ok(node) => node,
        Err(mistake) => return Ok(Err(mistake)),
    };
    if let [extra, ..] = parser.words {
        let extra = String::from_utf8_lossy(extra).into_owned();
        return Ok(wrong(format!("unexpected extra argument '{extra}'")));
    }
    let node = match parser.acts {
        true => node,
        false => Node::And(vec![node, Node::Print]),
    };
    Ok(Ok(Plan {
        starts,
        node,
        follow,
        follow_starts,
        most_depth: parser.most_depth,
        least_depth: parser.least_depth,
        folders_last: parser.folders_last,
        batches: parser.batches,
    }))
}

struct Parser<'a> {
    words: &'a [Vec<u8>],
    files: &'a Files,
    meter: &'a mut Meter,
    stop: Option<Stop>,
    /// Whether any action is named: otherwise `-print` is meant.
    acts: bool,
    most_depth: usize,
    least_depth: usize,
    folders_last: bool,
    batches: usize,
    depth: usize,
    /// Of the expressions after the last `-regextype`.
    syntax: regular::Options,
}

/// What expressions are without `-regextype`.
const EMACS: regular::Options = regular::Options {
    emacs: true,
    extended: false,
    fixed: false,
    perl: false,
    ignore_case: false,
    word: false,
    whole: false,
    lines: false,
    sed: false,
};

pub(super) type Parsed = Result<Node, Mistake>;

impl Parser<'_> {
    fn take(&mut self, names: &[&[u8]]) -> bool {
        match self.words {
            [first, rest @ ..] if names.contains(&first.as_slice()) => {
                self.words = rest;
                true
            }
            _ => false,
        }
    }

    fn comma(&mut self) -> Parsed {
        let mut nodes = vec![self.or()?];
        while self.take(&[b","]) {
            nodes.push(self.or()?);
        }
        Ok(joined(nodes, Node::Each))
    }

    fn or(&mut self) -> Parsed {
        let mut nodes = vec![self.and()?];
        while self.take(&[b"-o", b"-or"]) {
            nodes.push(self.and()?);
        }
        Ok(joined(nodes, Node::Or))
    }

    fn and(&mut self) -> Parsed {
        let mut nodes = vec![self.not()?];
        loop {
            let more = self.take(&[b"-a", b"-and"]);
            let ends = match self.words {
                [] => true,
                [next, ..] => matches!(next.as_slice(), b"-o" | b"-or" | b")" | b","),
            };
            match (ends, more) {
                (true, true) => return wrong("an expression is missing after -a"),
                (true, false) => return Ok(joined(nodes, Node::And)),
                (false, _) => nodes.push(self.not()?),
            }
        }
    }

    fn not(&mut self) -> Parsed {
        self.depth += 1;
        if self.depth > DEPTH {
            return Err(Mistake::Unsupported(format!("expressions deeper than {DEPTH}")));
        }
        let node = if self.take(&[b"!", b"-not"]) {
            Node::Not(Box::new(self.not()?))
        } else if self.take(&[b"("]) {
            let node = self.comma()?;
            if !self.take(&[b")"]) {
                return wrong("invalid expression; expected to find a ')'");
            }
            node
        } else {
            self.test()?
        };
        self.depth -= 1;
        Ok(node)
    }

    fn value(&mut self, name: &str) -> Result<Vec<u8>, Mistake> {
        match self.words {
            [value, rest @ ..] => {
                self.words = rest;
                Ok(value.clone())
            }
            [] => wrong(format!("missing argument to `{name}'")),
        }
    }

    fn number(&mut self, name: &str) -> Result<usize, Mistake> {
        let value = self.value(name)?;
        super::parse_number(&value).ok_or_else(|| {
            let value = String::from_utf8_lossy(&value);
            Mistake::Wrong(format!(
                "Expected a positive decimal integer argument to {name}, but got '{value}'"
            ))
        })
    }

    fn test(&mut self) -> Parsed {
        let Some((name, rest)) = self.words.split_first() else {
            return wrong("an expression is missing");
        };
        self.words = rest;
        let name = String::from_utf8_lossy(name).into_owned();
        Ok(match name.as_str() {
            "-name" => Node::Name(Pattern::new(&self.value(&name)?, false)),
            "-iname" => Node::Name(Pattern::new(&self.value(&name)?, true)),
            "-path" | "-wholename" => Node::Path(Pattern::new(&self.value(&name)?, false)),
            "-ipath" | "-iwholename" => Node::Path(Pattern::new(&self.value(&name)?, true)),
            "-regex" | "-iregex" => {
                let text = self.value(&name)?;
                self.regex(&text, name == "-iregex")?
            }
            "-regextype" => {
                let name = self.value(&name)?;
                self.syntax = match name.as_slice() {
                    b"findutils-default" | b"emacs" => EMACS,
                    b"posix-basic" | b"grep" | b"sed" | b"ed" | b"posix-minimal-basic" => {
                        regular::Options::default()
                    }
                    b"posix-extended" | b"egrep" | b"posix-egrep" | b"awk" | b"posix-awk"
                    | b"gnu-awk" => regular::Options { extended: true, ..Default::default() },
                    other => {
                        let name = String::from_utf8_lossy(other);
                        return wrong(format!("Unknown regular expression type '{name}'"));
                    }
                };
                Node::True
            }
            "-type" => {
                let kinds = self.value(&name)?;
                if !kinds.iter().all(|kind| b"fdlbcps,".contains(kind)) {
                    let kinds = String::from_utf8_lossy(&kinds);
                    return wrong(format!("Unknown argument to -type: {kinds}"));
                }
                Node::Kind(kinds)
            }
            "-empty" => Node::Empty,
            "-true" => Node::True,
            "-false" => Node::False,
            "-size" => {
                let text = self.value(&name)?;
                size(&text)?
            }
            "-links" => {
                let text = self.value(&name)?;
                let (compare, digits) = compare(&text);
                let count = super::parse_number(digits)
                    .ok_or_else(|| Mistake::Wrong("invalid argument to -links".to_owned()))?;
                Node::Links(compare, count)
            }
            "-newer" => {
                let path = self.value(&name)?;
                match self.files.stat(&path, true) {
                    Ok(stat) => Node::Newer(stat.times.modified),
                    Err(error) => {
                        let path = String::from_utf8_lossy(&path).into_owned();
                        let reason = crate::shell::files::describe(error);
                        return wrong(format!("\u{2018}{path}\u{2019}: {reason}"));
                    }
                }
            }
            "-maxdepth" => {
                self.most_depth = self.number(&name)?;
                Node::True
            }
            "-mindepth" => {
                self.least_depth = self.number(&name)?;
                Node::True
            }
            "-depth" => {
                self.folders_last = true;
                Node::True
            }
            "-mount" | "-xdev" | "-noleaf" | "-daystart" => Node::True,
            "-prune" => Node::Prune,
            "-print" => self.action(Node::Print),
            "-print0" => self.action(Node::PrintNull),
            "-printf" => {
                let text = self.value(&name)?;
                let parts = format(&text)?;
                self.action(Node::Format(parts))
            }
            "-delete" => {
                self.folders_last = true;
                self.action(Node::Delete)
            }
            "-quit" => self.action(Node::Quit),
            "-exec" => self.exec()?,
            _ if name.starts_with('-') => {
                return Err(Mistake::Unsupported(format!("the predicate `{name}'")));
            }
            _ => return wrong(format!("paths must precede expression: `{name}'")),
        })
    }

    fn action(&mut self, node: Node) -> Node {
        self.acts = true;
        node
    }

    fn regex(&mut self, text: &[u8], ignore_case: bool) -> Parsed {
        let options = regular::Options { whole: true, ignore_case, ..self.syntax };
        match Regular::new(text, options, self.meter) {
            Ok(Ok(regular)) => Ok(Node::Regex(regular)),
            Ok(Err(message)) => {
                let text = String::from_utf8_lossy(text);
                wrong(format!("failed to compile regular expression '{text}': {message}"))
            }
            Err(stop) => {
                self.stop = Some(stop);
                Ok(Node::False)
            }
        }
    }

    fn exec(&mut self) -> Parsed {
        let mut words = Vec::new();
        loop {
            let word = self.value("-exec")?;
            match word.as_slice() {
                b";" => break,
                b"+" if words.last().is_some_and(|last: &Vec<u8>| last == b"{}") => {
                    words.pop();
                    let plus = Some(self.batches);
                    self.batches += 1;
                    return Ok(self.action(Node::Exec { words, plus }));
                }
                _ => words.push(word),
            }
        }
        if words.is_empty() {
            return wrong("missing argument to `-exec'");
        }
        Ok(self.action(Node::Exec { words, plus: None }))
    }
}

/// One node alone, or several joined.
fn joined(mut nodes: Vec<Node>, join: fn(Vec<Node>) -> Node) -> Node {
    match (nodes.len(), nodes.pop()) {
        (1, Some(node)) => node,
        (_, last) => {
            nodes.extend(last);
            join(nodes)
        }
    }
}
