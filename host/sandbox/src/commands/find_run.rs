//! `find`: walks folders and evaluates expressions.

use fulgurite_trace::file::{FileKind, FileStat};

use super::find::{Mistake, Node, Part, Plan, parse};
use super::paths::folder_name;
use super::remove::DEPTH;
use crate::shell::evaluate::{Evaluator, Flow, Pending, Step};
use crate::shell::files::{base_name, describe, join};
use crate::shell::meter::{self, Stop};
use crate::shell::stream::{Input, Io, WriteError};

/// Bytes of arguments that one `-exec … +` collects.
const BATCH_BYTES: usize = 128 << 10;

/// What is being looked at.
struct Item {
    path: Vec<u8>,
    start: usize,
    depth: usize,
    stat: FileStat,
}

/// What is still to be done while folders are walked.
enum Visit {
    Enter(Item),
    /// With `-depth`: after everything below it.
    Leave(Item),
}

/// What one `-exec … +` collects.
#[derive(Debug, Clone, Default)]
struct Batch {
    words: Vec<Vec<u8>>,
    paths: Vec<Vec<u8>>,
    bytes: usize,
}

/// What an expression did besides having a value.
struct State {
    status: i32,
    prune: bool,
    quit: bool,
    batches: Vec<Batch>,
    flow: Flow,
}

impl Evaluator {
    pub(crate) async fn find_files(&mut self, arguments: &[Vec<u8>], io: &Io) -> Step {
        let words = arguments.get(1..).unwrap_or_default();
        let plan = match parse(words, &self.files, &mut self.meter)? {
            Ok(plan) => plan,
            Err(mistake) => {
                let (status, message) = match mistake {
                    Mistake::Wrong(message) => (1, message),
                    Mistake::Unsupported(what) => (2, format!("unsupported: {what}")),
                };
                self.say(io, &message)?;
                self.status = status;
                return Ok(Flow::Next);
            }
        };
        let mut state = State {
            status: 0,
            prune: false,
            quit: false,
            batches: vec![Batch::default(); plan.batches],
            flow: Flow::Next,
        };
        for start in &plan.starts {
            self.meter.charge(meter::ENTRY)?;
            match self.files.stat(start, plan.follow_starts) {
                Ok(stat) => {
                    let item = Item { path: start.clone(), start: start.len(), depth: 0, stat };
                    self.walk(&plan, item, &mut state, io).await?;
                }
                Err(error) => {
                    let shown = String::from_utf8_lossy(start).into_owned();
                    self.say(io, &format!("\u{2018}{shown}\u{2019}: {}", describe(error)))?;
                    state.status = 1;
                }
            }
            if state.quit || state.flow != Flow::Next {
                break;
            }
        }
        for batch in std::mem::take(&mut state.batches) {
            if !batch.paths.is_empty() {
                self.batch(batch.words, batch.paths, &mut state, io).await?;
            }
        }
        self.status = state.status;
        Ok(state.flow)
    }

    fn say(&mut self, io: &Io, message: &str) -> Result<(), Stop> {
        match io.stderr.write(format!("find: {message}\n").as_bytes()) {
            Err(WriteError::Full(stop)) => Err(stop),
            Ok(()) | Err(WriteError::File(_)) => Ok(()),
        }
    }

    /// Visits an entry and everything below it; no deeper on the stack than at its beginning.
    async fn walk(
        &mut self,
        plan: &Plan,
        start: Item,
        state: &mut State,
        io: &Io,
    ) -> Result<(), Stop> {
        let mut visits = vec![Visit::Enter(start)];
        while let Some(visit) = visits.pop() {
            if state.quit || state.flow != Flow::Next {
                return Ok(());
            }
            self.meter.charge(meter::ENTRY)?;
            let item = match visit {
                Visit::Leave(item) => {
                    self.holds(&plan.node, &item, state, io).await?;
                    continue;
                }
                Visit::Enter(item) => item,
            };
            let shown = item.depth >= plan.least_depth;
            state.prune = false;
            if shown && !plan.folders_last {
                self.holds(&plan.node, &item, state, io).await?;
            }
            let mut below = Vec::new();
            let folder = item.stat.kind == FileKind::Directory;
            let pruned = state.prune && !plan.folders_last;
            if folder && !pruned && item.depth < plan.most_depth.min(DEPTH) {
                match self.files.list(&item.path) {
                    Ok(entries) => {
                        for entry in entries.iter() {
                            let path = join(&item.path, entry.name.as_bytes());
                            below.push((path, item.start, item.depth + 1));
                        }
                    }
                    Err(error) => {
                        let name = String::from_utf8_lossy(&item.path).into_owned();
                        self.say(io, &format!("\u{2018}{name}\u{2019}: {}", describe(error)))?;
                        state.status = 1;
                    }
                }
            }
            if shown && plan.folders_last {
                visits.push(Visit::Leave(item));
            }
            for (path, start, depth) in below.into_iter().rev() {
                // A dangling link is itself.
                let stat =
                    self.files.stat(&path, plan.follow).or_else(|_| self.files.stat(&path, false));
                if let Ok(stat) = stat {
                    visits.push(Visit::Enter(Item { path, start, depth, stat }));
                }
            }
        }
        Ok(())
    }

    fn holds<'a>(
        &'a mut self,
        node: &'a Node,
        item: &'a Item,
        state: &'a mut State,
        io: &'a Io,
    ) -> Pending<'a, Result<bool, Stop>> {
        Box::pin(async move {
            self.meter.charge(meter::LINE)?;
            if state.quit || state.flow != Flow::Next {
                return Ok(false);
            }
            Ok(match node {
                Node::And(nodes) => {
                    let mut value = true;
                    for node in nodes {
                        value = self.holds(node, item, state, io).await?;
                        if !value {
                            break;
                        }
                    }
                    value
                }
                Node::Or(nodes) => {
                    let mut value = false;
                    for node in nodes {
                        value = self.holds(node, item, state, io).await?;
                        if value {
                            break;
                        }
                    }
                    value
                }
                Node::Each(nodes) => {
                    let mut value = true;
                    for node in nodes {
                        value = self.holds(node, item, state, io).await?;
                    }
                    value
                }
                Node::Not(inner) => !self.holds(inner, item, state, io).await?,
                Node::True => true,
                Node::False => false,
                Node::Name(pattern) => {
                    let name = base_name(&item.path);
                    self.meter.charge_each(pattern.cost(name), meter::BYTE)?;
                    pattern.matches(name)
                }
                Node::Path(pattern) => {
                    self.meter.charge_each(pattern.cost(&item.path), meter::BYTE)?;
                    pattern.matches(&item.path)
                }
                Node::Regex(regular) => regular.is_match(&item.path, &mut self.meter)?,
                Node::Kind(kinds) => kinds.contains(&letter(item.stat.kind)),
                Node::Empty => match item.stat.kind {
                    FileKind::File => item.stat.size == 0,
                    FileKind::Directory => {
                        self.files.list(&item.path).is_ok_and(|entries| entries.is_empty())
                    }
                    FileKind::Symlink => false,
                },
                Node::Size { compare, size, unit } => {
                    compare.holds(item.stat.size.div_ceil(*unit), *size)
                }
                Node::Newer(time) => item.stat.times.modified > *time,
                Node::Links(compare, count) => compare.holds(item.stat.links, *count),
                Node::Print => self.show(&item.path, b"\n", state, io)?,
                Node::PrintNull => self.show(&item.path, b"\0", state, io)?,
                Node::Format(parts) => {
                    let text = self.formatted(parts, item);
                    self.show(&text, b"", state, io)?
                }
                Node::Prune => {
                    state.prune = true;
                    true
                }
                Node::Quit => {
                    state.quit = true;
                    true
                }
                Node::Delete => self.delete(item, state, io)?,
                Node::Exec { words, plus: None } => {
                    let room = self.limits.variable_bytes;
                    let words = words
                        .iter()
                        .map(|word| super::xargs::replaced(word, b"{}", &item.path, room))
                        .collect::<Result<Vec<_>, _>>()?;
                    self.check_room(words.iter().map(Vec::len).sum())?;
                    self.child(words, state, io).await? == 0
                }
                Node::Exec { words, plus: Some(index) } => {
                    let mut full = None;
                    if let Some(batch) = state.batches.get_mut(*index) {
                        batch.words.clone_from(words);
                        batch.paths.push(item.path.clone());
                        batch.bytes += item.path.len() + 1;
                        if batch.bytes > BATCH_BYTES {
                            batch.bytes = 0;
                            full = Some(std::mem::take(&mut batch.paths));
                        }
                    }
                    if let Some(paths) = full {
                        self.batch(words.clone(), paths, state, io).await?;
                    }
                    true
                }
            })
        })
    }

    fn show(&mut self, text: &[u8], end: &[u8], state: &mut State, io: &Io) -> Result<bool, Stop> {
        self.meter.charge_each(text.len() + 1, meter::BYTE)?;
        match io.stdout.write(&[text, end].concat()) {
            Ok(()) => Ok(true),
            Err(WriteError::Full(stop)) => Err(stop),
            Err(WriteError::File(error)) => {
                self.say(io, &format!("write error: {}", describe(error)))?;
                state.status = 1;
                state.quit = true;
                Ok(false)
            }
        }
    }

    fn formatted(&self, parts: &[Part], item: &Item) -> Vec<u8> {
        let mut text = Vec::new();
        for part in parts {
            match part {
                Part::Text(plain) => text.extend_from_slice(plain),
                Part::Letter(b'p') => text.extend_from_slice(&item.path),
                Part::Letter(b'f') => text.extend_from_slice(base_name(&item.path)),
                Part::Letter(b'h') => text.extend_from_slice(folder_name(&item.path)),
                Part::Letter(b's') => text.extend(item.stat.size.to_string().bytes()),
                Part::Letter(b'd') => text.extend(item.depth.to_string().bytes()),
                Part::Letter(b'y') => text.push(letter(item.stat.kind)),
                Part::Letter(b'l') => {
                    text.extend(self.files.read_link(&item.path).unwrap_or_default().bytes());
                }
                Part::Letter(_) => {
                    let inner = item.path.get(item.start..).unwrap_or_default();
                    text.extend_from_slice(inner.strip_prefix(b"/").unwrap_or(inner));
                }
            }
        }
        text
    }

    fn delete(&mut self, item: &Item, state: &mut State, io: &Io) -> Result<bool, Stop> {
        // The place where the search began is never removed when it is `.`.
        if item.path == b"." {
            return Ok(true);
        }
        let removed = match item.stat.kind {
            FileKind::Directory => self.files.remove_directory(&item.path),
            _ => self.files.unlink(&item.path),
        };
        match removed {
            Ok(()) => Ok(true),
            Err(error) => {
                let shown = String::from_utf8_lossy(&item.path).into_owned();
                self.say(
                    io,
                    &format!("cannot delete \u{2018}{shown}\u{2019}: {}", describe(error)),
                )?;
                state.status = 1;
                Ok(false)
            }
        }
    }

    /// Runs a command for an item; its status.
    async fn child(
        &mut self,
        words: Vec<Vec<u8>>,
        state: &mut State,
        io: &Io,
    ) -> Result<i32, Stop> {
        let inner = Io { stdin: Input::empty(), ..io.clone() };
        if self.run(words, &inner).await? == Flow::Exit {
            state.flow = Flow::Exit;
        }
        Ok(self.status)
    }

    async fn batch(
        &mut self,
        mut words: Vec<Vec<u8>>,
        paths: Vec<Vec<u8>>,
        state: &mut State,
        io: &Io,
    ) -> Result<(), Stop> {
        words.extend(paths);
        if self.child(words, state, io).await? != 0 {
            state.status = 1;
        }
        Ok(())
    }
}

fn letter(kind: FileKind) -> u8 {
    match kind {
        FileKind::File => b'f',
        FileKind::Directory => b'd',
        FileKind::Symlink => b'l',
    }
}
