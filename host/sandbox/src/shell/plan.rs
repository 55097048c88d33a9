//! A shell line after parsing, with every word cut into pieces: what the evaluator walks.
//!
//! Building the whole plan before anything runs means that an unsupported construct anywhere in
//! the line is refused before the line has done anything.

use std::sync::Arc;

/// Commands one after another.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct List(pub(crate) Vec<AndOr>);

/// Pipelines joined by `&&` and `||`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct AndOr {
    pub(crate) first: Pipeline,
    pub(crate) rest: Vec<(Joint, Pipeline)>,
}

/// How a pipeline hangs on the one before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Joint {
    And,
    Or,
}

/// Stages joined by `|`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Pipeline {
    pub(crate) negated: bool,
    pub(crate) stages: Vec<Stage>,
}

/// One command with its redirects.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Stage {
    pub(crate) command: Command,
    pub(crate) redirects: Vec<Redirect>,
}

/// What a stage does.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Command {
    Simple { assignments: Vec<Assignment>, words: Vec<Word> },
    Group(List),
    Subshell(List),
    For { variable: String, words: Option<Vec<Word>>, body: List },
    ArithmeticFor { start: Option<Word>, condition: Option<Word>, step: Option<Word>, body: List },
    While { condition: List, until: bool, body: List },
    If { branches: Vec<(List, List)>, otherwise: Option<List> },
    Case { word: Word, arms: Vec<Arm> },
    Arithmetic(Word),
    Condition(Condition),
    Function { name: String, body: Arc<Stage>, size: usize },
}

/// `NAME=value` or `NAME+=value`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Assignment {
    pub(crate) name: String,
    pub(crate) value: Word,
    pub(crate) append: bool,
}

/// One arm of `case`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Arm {
    pub(crate) patterns: Vec<Word>,
    pub(crate) body: Option<List>,
    pub(crate) end: ArmEnd,
}

/// What follows an arm that matched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ArmEnd {
    Leave,
    FallThrough,
    TryNext,
}

/// `[[ … ]]`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Condition {
    And(Box<Condition>, Box<Condition>),
    Or(Box<Condition>, Box<Condition>),
    Not(Box<Condition>),
    /// A test of `test` on one word, by its letter.
    Unary(char, Word),
    /// A test of `test` on two words, by its name.
    Binary(&'static str, Word, Word),
    /// `==` and `!=` against a pattern.
    Pattern {
        text: Word,
        pattern: Word,
        equal: bool,
    },
    /// `=~`.
    Regex {
        text: Word,
        pattern: Word,
    },
}

/// One redirect.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Redirect {
    pub(crate) stream: Stream,
    pub(crate) target: Target,
}

/// Which stream is redirected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stream {
    Stdin,
    Stdout,
    Stderr,
    /// Standard output and error together.
    Both,
}

/// Where to.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Target {
    Read(Word),
    Write(Word),
    Append(Word),
    /// The same place as another stream.
    Same(Stream),
    /// Text of a here-document.
    Text(Word),
    /// A here-string; a newline follows it.
    Line(Word),
}

/// A word: pieces that are expanded and joined.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Word(pub(crate) Vec<Piece>);

/// A piece of a word. `quoted` pieces are neither split nor matched against file names.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Piece {
    Text { text: Vec<u8>, quoted: bool },
    Parameter { parameter: Box<Parameter>, quoted: bool },
    Command { list: Arc<List>, quoted: bool },
    Arithmetic { expression: Word, quoted: bool },
    Home,
}

/// `$name` or `${name…}`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Parameter {
    pub(crate) name: Name,
    pub(crate) change: Change,
}

/// What a parameter names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Name {
    Variable(String),
    Positional(usize),
    Count,
    Status,
    /// `$@`
    Each,
    /// `$*`
    Joined,
    /// `$$` and `$!`: fixed numbers here.
    Process,
    /// `$-`
    Flags,
}

/// What is done to a parameter's value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Change {
    None,
    Length,
    /// `-`, `=`, `?` and `+`; `colon` also takes an empty value for unset.
    Unless {
        colon: bool,
        otherwise: Otherwise,
        word: Word,
    },
    Trim {
        end: End,
        longest: bool,
        pattern: Word,
    },
    Slice {
        offset: Word,
        length: Option<Word>,
    },
    Replace {
        place: Place,
        pattern: Word,
        replacement: Word,
    },
    Case {
        upper: bool,
        all: bool,
    },
}

/// What to do with a parameter that is not set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Otherwise {
    Use,
    Assign,
    Fail,
    /// The other way round: the word stands for a value that is set.
    Replace,
}

/// Which end of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Front,
    Back,
}

/// Where a replacement happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    First,
    All,
    Front,
    Back,
}

/// Why a line is not run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Not offered here; names the construct.
    Unsupported(String),
    /// No shell would take it.
    Syntax(String),
}

impl Refusal {
    pub(crate) fn unsupported(construct: impl Into<String>) -> Self {
        Self::Unsupported(construct.into())
    }

    pub(crate) fn syntax(what: impl Into<String>) -> Self {
        Self::Syntax(what.into())
    }
}
