//! `sed`: what a script says.

use super::regular::Regular;

/// One command. Blocks are jumps: `index` in the list of all commands.
#[derive(Debug, Clone)]
pub(super) struct Command {
    pub(super) from: Option<Address>,
    pub(super) to: Option<Address>,
    pub(super) negated: bool,
    pub(super) action: Action,
}

/// A place in the input.
#[derive(Debug, Clone)]
pub(super) enum Address {
    Line(usize),
    Last,
    /// `None`: the last expression that was used.
    Match(Option<Regular>),
    /// `first~step`.
    Step(usize, usize),
    /// `addr,+n`.
    Plus(usize),
    /// `addr,~n`.
    Multiple(usize),
}

/// What a command does.
#[derive(Debug, Clone)]
pub(super) enum Action {
    /// `{`: goes on behind the block at that index when it does not apply.
    Block(usize),
    End,
    Append(Vec<u8>),
    Insert(Vec<u8>),
    Change(Vec<u8>),
    Delete,
    DeleteFirst,
    Print,
    PrintFirst,
    Number,
    Next,
    NextAppend,
    Hold,
    HoldAppend,
    Get,
    GetAppend,
    Exchange,
    Quit(i32),
    QuitSilently(i32),
    Substitute(Box<Substitute>),
    Translate(Box<[u8; 256]>),
    Branch(Option<usize>),
    BranchIf(Option<usize>),
    BranchUnless(Option<usize>),
    List,
    Write(Vec<u8>),
    Read(Vec<u8>),
    Clear,
}

/// `s`.
#[derive(Debug, Clone)]
pub(super) struct Substitute {
    pub(super) regular: Option<Regular>,
    pub(super) replacement: Vec<Part>,
    pub(super) global: bool,
    pub(super) print: bool,
    pub(super) number: usize,
    pub(super) write: Option<Vec<u8>>,
}

/// A part of a replacement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Part {
    Text(Vec<u8>),
    Group(usize),
    Case(Case),
}

/// `\U`, `\L`, `\u`, `\l`, `\E`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Case {
    Upper,
    Lower,
    UpperOne,
    LowerOne,
    End,
}
