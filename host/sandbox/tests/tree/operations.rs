//! The random operations that both comparisons use.

use fulgurite_trace::file::OpenMode;
use proptest::prelude::*;

/// One operation. `slot` names one of the handles opened so far, if there is any.
#[derive(Debug, Clone)]
pub(crate) enum Operation {
    Open {
        base: Option<usize>,
        path: String,
        mode: Mode,
    },
    Close {
        slot: usize,
    },
    Read {
        slot: usize,
        offset: u64,
        length: u64,
    },
    Write {
        slot: usize,
        offset: u64,
        bytes: Filling,
    },
    Append {
        slot: usize,
        bytes: Filling,
    },
    SetSize {
        slot: usize,
        size: u64,
    },
    Stat {
        slot: usize,
    },
    StatAt {
        base: Option<usize>,
        path: String,
        follow: bool,
    },
    ReadDirectory {
        slot: usize,
    },
    MakeDirectory {
        base: Option<usize>,
        path: String,
    },
    RemoveDirectory {
        path: String,
    },
    Unlink {
        base: Option<usize>,
        path: String,
    },
    Rename {
        from: String,
        to: String,
    },
    Symlink {
        target: String,
        path: String,
    },
    Link {
        from: String,
        to: String,
    },
    ReadLink {
        path: String,
    },
    /// Of the host's own methods; the comparison with a real folder leaves them out.
    WriteFile {
        path: String,
        bytes: Filling,
    },
    CopyFile {
        from: String,
        to: String,
    },
    RemoveRecursive {
        path: String,
    },
    LayDown {
        path: String,
        bytes: Filling,
    },
    /// Goes on in a fork, which has no handles.
    Fork,
    Digest,
}

/// Counting bytes; shown by the first one and their number.
#[derive(Clone)]
pub(crate) struct Filling(Vec<u8>);

impl std::ops::Deref for Filling {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl std::fmt::Debug for Filling {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} bytes from {:?}", self.0.len(), self.0.first())
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Mode {
    pub(crate) create: bool,
    pub(crate) exclusive: bool,
    pub(crate) truncate: bool,
    pub(crate) directory: bool,
    pub(crate) follow: bool,
    pub(crate) read: bool,
    pub(crate) write: bool,
}

impl From<Mode> for OpenMode {
    fn from(mode: Mode) -> Self {
        let Mode { create, exclusive, truncate, directory, follow, read, write } = mode;
        Self { create, exclusive, truncate, directory, follow, read, write }
    }
}

/// Few names, so that operations meet each other; `toolong` exceeds the quota of the model test.
pub(crate) fn path() -> impl Strategy<Value = String> {
    let plain = || prop::sample::select(vec!["a", "b", "c", "l"]);
    let name = prop_oneof![30 => plain(), 2 => Just("."), 4 => Just(".."), 1 => Just("toolong")];
    let names = prop_oneof![
        8 => prop::collection::vec(plain(), 1..=2),
        4 => prop::collection::vec(name, 0..=4),
    ];
    let ends = prop_oneof![24 => Just(""), 2 => Just("/"), 1 => Just("//"), 1 => Just("/.")];
    let starts = prop_oneof![40 => Just(""), 1 => Just("/")];
    let separator = prop_oneof![20 => Just("/"), 1 => Just("//")];
    (starts, names, separator, ends).prop_map(|(start, names, separator, end)| {
        // An empty path stays empty now and then.
        let path = names.join(separator);
        if path.is_empty() { path } else { format!("{start}{path}{end}") }
    })
}

fn bytes() -> impl Strategy<Value = Filling> {
    let length = prop_oneof![
        6 => 0..40_usize,
        2 => 60_000..70_000_usize,
        1 => Just(65_536_usize),
        1 => 120_000..140_000_usize,
    ];
    (any::<u8>(), length)
        .prop_map(|(seed, length)| (0..length).map(|at| (at as u8).wrapping_add(seed)).collect())
        .prop_map(Filling)
}

fn offset() -> impl Strategy<Value = u64> {
    prop_oneof![
        6 => 0..50_u64,
        3 => 65_500..65_600_u64,
        1 => 130_000..132_000_u64,
        1 => prop_oneof![Just(u64::MAX), Just(1 << 40)],
    ]
}

fn mode() -> impl Strategy<Value = Mode> {
    let often = prop::bool::weighted(0.75);
    let seldom = prop::bool::weighted(0.15);
    (often, seldom, seldom, seldom, often, often, often).prop_map(
        |(create, exclusive, truncate, directory, follow, read, write)| Mode {
            create,
            exclusive,
            truncate,
            directory,
            follow,
            read,
            write,
        },
    )
}

fn base() -> impl Strategy<Value = Option<usize>> {
    prop_oneof![4 => Just(None), 1 => (0..8_usize).prop_map(Some)]
}

/// Operations that the real file system offers as well.
pub(crate) fn posix() -> impl Strategy<Value = Operation> {
    let slot = || 0..8_usize;
    prop_oneof![
        8 => (base(), path(), mode())
            .prop_map(|(base, path, mode)| Operation::Open { base, path, mode }),
        2 => slot().prop_map(|slot| Operation::Close { slot }),
        3 => (slot(), offset(), 0..70_000_u64)
            .prop_map(|(slot, offset, length)| Operation::Read { slot, offset, length }),
        5 => (slot(), offset(), bytes())
            .prop_map(|(slot, offset, bytes)| Operation::Write { slot, offset, bytes }),
        3 => (slot(), bytes()).prop_map(|(slot, bytes)| Operation::Append { slot, bytes }),
        2 => (slot(), offset()).prop_map(|(slot, size)| Operation::SetSize { slot, size }),
        2 => slot().prop_map(|slot| Operation::Stat { slot }),
        3 => (base(), path(), any::<bool>())
            .prop_map(|(base, path, follow)| Operation::StatAt { base, path, follow }),
        2 => slot().prop_map(|slot| Operation::ReadDirectory { slot }),
        5 => (base(), path()).prop_map(|(base, path)| Operation::MakeDirectory { base, path }),
        3 => path().prop_map(|path| Operation::RemoveDirectory { path }),
        4 => (base(), path()).prop_map(|(base, path)| Operation::Unlink { base, path }),
        8 => (path(), path()).prop_map(|(from, to)| Operation::Rename { from, to }),
        5 => (path(), path()).prop_map(|(target, path)| Operation::Symlink { target, path }),
        4 => (path(), path()).prop_map(|(from, to)| Operation::Link { from, to }),
        2 => path().prop_map(|path| Operation::ReadLink { path }),
    ]
}

/// All operations.
pub(crate) fn any_operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        12 => posix(),
        2 => (path(), bytes()).prop_map(|(path, bytes)| Operation::WriteFile { path, bytes }),
        1 => (path(), path()).prop_map(|(from, to)| Operation::CopyFile { from, to }),
        1 => path().prop_map(|path| Operation::RemoveRecursive { path }),
        2 => (path(), bytes()).prop_map(|(path, bytes)| Operation::LayDown { path, bytes }),
        1 => Just(Operation::Fork),
        2 => Just(Operation::Digest),
    ]
}
