//! The host's copy of one conversation: its messages, its token ids and where branches may start.
//!
//! Nothing here calls a policy. A call has two halves: [`Transcript::prepare`] makes the prompt
//! and changes nothing, [`Transcript::accept`] takes what the policy said. Between them the
//! conversation is as it was, and so it stays when the call fails.

use std::{collections::BTreeMap, sync::Arc};

use fulgurite_policy::{ChatFormat, FormatError, Prompt, keep_known};
use fulgurite_trace::{Message, Role, ToolDefinition, entry::SegmentOrigin};

use crate::{History, check};

/// Messages and ids of one conversation.
#[derive(Debug, Clone)]
pub(crate) struct Transcript {
    system: Option<Message>,
    tools: Arc<[ToolDefinition]>,
    current: Line,
    /// Lines that restarts replaced and that branches may still start from.
    past: Vec<Line>,
    marks: Vec<Mark>,
    /// Messages of the current line that the trace knows.
    recorded: usize,
    segment: u32,
    origin: SegmentOrigin,
    /// The segment has no turn yet.
    fresh: bool,
    /// Whether the last response holds its end token.
    ended: bool,
    turns: u32,
    tools_recorded: bool,
}

/// A history as it stands between two restarts.
#[derive(Debug, Clone, Default)]
struct Line {
    messages: Vec<Message>,
    /// Replies that a stop string cut, as the policy said them, by their place in `messages`.
    uncut: BTreeMap<usize, Message>,
    /// The segment's ids; none when they are not known.
    ids: Option<Vec<u32>>,
}

/// The state right after a turn.
#[derive(Debug, Clone, Copy)]
struct Mark {
    turn: u32,
    line: usize,
    messages: usize,
    /// How many of the line's ids; none when they are not those of the turn's segment.
    ids: Option<usize>,
    ended: bool,
}

/// The exact tokens of a call.
#[derive(Debug, Clone)]
pub(crate) struct Exact<'a> {
    pub(crate) prompt: &'a [u32],
    pub(crate) response: &'a [u32],
    pub(crate) ended: bool,
    /// The reply as the ids spell it, where a stop string cut it.
    pub(crate) uncut: Option<Message>,
}

/// What the trace is told of an accepted reply.
#[derive(Debug, PartialEq)]
pub(crate) struct Accepted {
    pub(crate) segment: u32,
    pub(crate) origin: SegmentOrigin,
    pub(crate) tools: Vec<ToolDefinition>,
    pub(crate) messages: Vec<Message>,
    /// The ids between the segment's history so far and the response.
    pub(crate) context: Option<Vec<u32>>,
}

/// How much of a stateless history a conversation has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seen {
    /// That many of the given messages.
    pub(crate) messages: usize,
    /// The turn to branch from; none when the conversation can go on as it is.
    pub(crate) branch_at: Option<u32>,
}

impl Transcript {
    pub(crate) fn new(system: Option<String>, tools: Arc<[ToolDefinition]>) -> Self {
        let system = system.map(|text| Message::text(Role::System, text));
        let current = Line { messages: system.iter().cloned().collect(), ..Line::default() };
        Self {
            system,
            tools,
            current,
            past: Vec::new(),
            marks: Vec::new(),
            recorded: 0,
            segment: 0,
            origin: SegmentOrigin::Opened,
            fresh: true,
            ended: false,
            turns: 0,
            tools_recorded: false,
        }
    }

    pub(crate) fn tools(&self) -> &Arc<[ToolDefinition]> {
        &self.tools
    }

    /// Turns so far.
    pub(crate) const fn turns(&self) -> u32 {
        self.turns
    }

    /// Bytes that this holds, roughly.
    pub(crate) fn size(&self) -> usize {
        self.past.iter().chain([&self.current]).map(Line::size).sum()
    }

    /// Whether somebody but the assistant spoke last once `new` is appended.
    pub(crate) fn awaits_reply(&self, new: &[Message]) -> bool {
        let last = new.last().or(self.current.messages.last());
        last.is_some_and(|message| !matches!(message.role, Role::Assistant | Role::System))
    }

    /// The prompt for the next reply.
    pub(crate) fn prepare(
        &self,
        new: &[Message],
        history: History,
        format: Option<&dyn ChatFormat>,
    ) -> Result<Prompt, FormatError> {
        let Some(format) = format else {
            let whole = self.current.messages.iter().chain(new);
            return Ok(Prompt::Messages(whole.cloned().collect()));
        };
        let render = || {
            let whole: Vec<Message> = self.current.as_said().chain(new).cloned().collect();
            format.render(&whole, &self.tools)
        };
        let ids = match (history, &self.current.ids) {
            (History::AppendOnly, Some(ids)) => {
                let next = format.render_continuation(new, &self.tools, self.ended)?;
                [ids.as_slice(), &next].concat()
            }
            (History::Faithful, Some(ids)) => keep_known(format, ids, render()?),
            (_, None) => render()?,
        };
        Ok(Prompt::Tokens(ids.into()))
    }

    /// Takes the reply to `new` as turn `turn` of the episode.
    pub(crate) fn accept(
        &mut self,
        turn: u32,
        new: Vec<Message>,
        reply: Message,
        mut exact: Option<Exact<'_>>,
    ) -> Accepted {
        let uncut = exact.as_mut().and_then(|exact| exact.uncut.take());
        let context = self.extend_ids(exact);
        let mut messages = self.current.messages.split_off(self.recorded);
        messages.extend(new);
        self.current.messages.extend(messages.iter().cloned());
        self.current.uncut.extend(uncut.map(|uncut| (self.current.messages.len(), uncut)));
        self.current.messages.push(reply);
        self.recorded = self.current.messages.len();
        self.fresh = false;
        self.turns = self.turns.saturating_add(1);
        self.marks.push(Mark {
            turn,
            line: self.past.len(),
            messages: self.recorded,
            ids: self.current.ids.as_ref().map(Vec::len),
            ended: self.ended,
        });
        let tools = if self.tools_recorded { Vec::new() } else { self.tools.to_vec() };
        self.tools_recorded = true;
        let (segment, origin) = (self.segment, self.origin.clone());
        Accepted { segment, origin, tools, messages, context }
    }

    /// Within a segment the ids only grow; a prompt that does not extend them begins a new one.
    fn extend_ids(&mut self, exact: Option<Exact<'_>>) -> Option<Vec<u32>> {
        let Some(Exact { prompt, response, ended, .. }) = exact else {
            self.forget_ids();
            return None;
        };
        let known = self.current.ids.as_deref();
        let extension = known.and_then(|known| prompt.strip_prefix(known));
        if extension.is_none() {
            if !self.fresh {
                self.segment = self.segment.saturating_add(1);
                self.origin = SegmentOrigin::Rendered;
            }
            self.forget_ids();
        }
        let extension = extension.unwrap_or(prompt);
        // A branch begins with ids that its own segment has not told yet.
        let context = if self.fresh { prompt } else { extension }.to_vec();
        let ids = self.current.ids.get_or_insert_default();
        ids.extend_from_slice(extension);
        ids.extend_from_slice(response);
        self.ended = ended;
        Some(context)
    }

    fn forget_ids(&mut self) {
        self.current.ids = None;
        self.marks.iter_mut().filter(|mark| mark.line == self.past.len()).for_each(|mark| {
            mark.ids = None;
        });
    }

    /// A conversation that shares the history up to and including that turn; none when the turn
    /// is not one of this conversation's.
    pub(crate) fn branch(&self, turn: u32) -> Option<Self> {
        let mark = self.marks.iter().rev().find(|mark| mark.turn == turn)?;
        let line = self.past.get(mark.line).unwrap_or(&self.current);
        let ids = line.ids.as_ref().zip(mark.ids);
        let ids = ids.and_then(|(ids, length)| ids.get(..length)).map(<[u32]>::to_vec);
        let messages = line.messages.iter().take(mark.messages).cloned().collect();
        let uncut = line.uncut.range(..mark.messages);
        let uncut = uncut.map(|(place, message)| (*place, message.clone())).collect();
        let marks = self
            .marks
            .iter()
            .filter(|other| other.line == mark.line && other.messages <= mark.messages)
            .map(|other| Mark { line: 0, ..*other })
            .collect();
        Some(Self {
            system: self.system.clone(),
            tools: Arc::clone(&self.tools),
            current: Line { messages, uncut, ids },
            past: Vec::new(),
            marks,
            recorded: mark.messages,
            segment: 0,
            origin: SegmentOrigin::Branched { turn },
            fresh: true,
            ended: mark.ended,
            turns: 0,
            tools_recorded: false,
        })
    }

    /// Replaces the history; `messages` follow the system message.
    pub(crate) fn restart(&mut self, messages: Vec<Message>, reason: String) {
        let messages = self.system.iter().cloned().chain(messages).collect();
        let line = Line { messages, ..Line::default() };
        let replaced = std::mem::replace(&mut self.current, line);
        if self.marks.iter().any(|mark| mark.line == self.past.len()) {
            self.past.push(replaced);
        }
        if !self.fresh {
            self.segment = self.segment.saturating_add(1);
        }
        self.fresh = true;
        self.ended = false;
        self.recorded = 0;
        self.origin = SegmentOrigin::Restarted { reason };
    }

    /// How much of a history without system message this conversation has seen. Something must
    /// be left to answer.
    pub(crate) fn seen(&self, messages: &[Message]) -> Option<Seen> {
        let system = self.system.iter().len();
        let own = self.current.messages.iter().skip(system);
        let common = own.zip(messages).take_while(|(own, other)| check::same(own, other)).count();
        let usable = |mark: &&Mark| {
            let length = mark.messages.saturating_sub(system);
            mark.line == self.past.len() && length <= common && length < messages.len()
        };
        match self.marks.iter().rev().find(usable) {
            Some(mark) => {
                let whole = mark.messages == self.current.messages.len();
                let messages = mark.messages.saturating_sub(system);
                Some(Seen { messages, branch_at: (!whole).then_some(mark.turn) })
            }
            // Opened for a call that failed.
            None if self.current.messages.len() == system => {
                Some(Seen { messages: 0, branch_at: None })
            }
            None => None,
        }
    }

    /// How many ids of a raw prompt this conversation has seen, when the prompt extends it.
    pub(crate) fn seen_ids(&self, prompt: &[u32]) -> Option<usize> {
        let ids = self.current.ids.as_deref().unwrap_or_default();
        (self.current.ids.is_some() || self.turns == 0)
            .then_some(ids)
            .filter(|ids| prompt.starts_with(ids))
            .map(<[u32]>::len)
    }
}

impl Line {
    /// The messages, replies as the policy said them: stop strings end a reply, but the ids
    /// hold them.
    fn as_said(&self) -> impl Iterator<Item = &Message> {
        let messages = self.messages.iter().enumerate();
        messages.map(|(place, message)| self.uncut.get(&place).unwrap_or(message))
    }

    fn size(&self) -> usize {
        let messages = self.messages.iter().chain(self.uncut.values());
        let text: usize = messages.map(check::size).sum();
        text + self.ids.as_ref().map_or(0, Vec::len) * size_of::<u32>()
    }
}
