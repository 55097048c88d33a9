//! Chat templates: between messages and token ids, for token-level policies.
//!
//! The template is the model's own (Jinja, run by minijinja as transformers runs it: trimmed
//! blocks, Python's string methods, `raise_exception`, `strftime_now` with a fixed date so that
//! equal runs are equal).
//!
//! # Text never becomes special tokens
//!
//! A template glues the texts of messages between markers such as `<|im_end|>`; a text that
//! spells a marker must not become one. So the template never sees texts. It is run with a
//! placeholder for each (a number between two characters of a private-use plane);
//! its output is cut at the placeholders; only what the template itself wrote is encoded with
//! special tokens, the texts without. Texts that pass through a filter or method (`trim`,
//! `tojson`, `split`) stay texts. What cannot be tracked (a template that cuts texts by position)
//! is an error, never a leak.
//!
//! What follows from it: a template that *searches* a text (`'</think>' in content`) finds
//! nothing, where transformers' would. Thinking and tool calls are therefore handed to the
//! template apart from the text. Everything else is rendered byte by byte as transformers does
//! (`tests/golden/make_chat.py` holds what is compared).
//!
//! # What a hostile template can do
//!
//! Its steps, its output and the texts it makes are bounded, and it reaches nothing but the
//! conversation. A template can still build strings of any length (by doubling one) and so exhaust
//! the memory of the process: minijinja has no bound for that. It is the one part of a model file
//! that needs trust.

mod filters;
mod json;
mod known;
mod parse;
mod template;
mod texts;

use std::sync::Arc;

use fulgurite_trace::{Message, Part, Role, ToolDefinition};

pub use self::known::keep_known;
pub(crate) use self::parse::{THINK_CLOSE, THINK_OPEN, TOOL_CALL_OPEN};
use self::{
    parse::{CallStyle, ParsedReply, parse_reply},
    template::Template,
    texts::{Piece, Texts},
};
use crate::{ChatFormat, FormatError, Tokenizer, tokenizer};

/// The longest template.
const MAXIMUM_TEMPLATE: usize = 256 << 10;

/// ChatML, for models that carry no template.
const CHATML: &str = "{% for message in messages %}{{ '<|im_start|>' + message.role + '\\n' + \
     message.content + '<|im_end|>\\n' }}{% endfor %}{% if add_generation_prompt %}\
     {{ '<|im_start|>assistant\\n' }}{% endif %}";

/// A model's chat template with its tokenizer. See the [module](self).
#[derive(Debug)]
pub struct TemplateFormat {
    tokenizer: Arc<Tokenizer>,
    template: Template,
    /// How the model writes tool calls; none where its template knows no tools.
    calls: Option<CallStyle>,
}

impl TemplateFormat {
    /// The format of this template; ChatML where there is none.
    pub fn new(tokenizer: Arc<Tokenizer>, template: Option<&str>) -> Result<Self, FormatError> {
        let source = template.unwrap_or(CHATML);
        if source.len() > MAXIMUM_TEMPLATE {
            return Err(FormatError(format!("it is longer than {} KiB", MAXIMUM_TEMPLATE >> 10)));
        }
        let (begin, _) = tokenizer.begin();
        let begin = begin.and_then(|id| tokenizer.spelling(id)).unwrap_or_default();
        let end = tokenizer.end_spelling().unwrap_or_default();
        let template = Template::new(source, begin, end)?;
        let calls = template.knows_tools().then(|| CallStyle::of(source));
        Ok(Self { tokenizer, template, calls })
    }

    /// The format of tiny models: every byte a token, a marker before and behind each message.
    pub fn byte_level() -> Result<Self, FormatError> {
        Self::new(Arc::new(Tokenizer::byte_level()), Some(tokenizer::BYTE_TEMPLATE))
    }

    /// Sets the switch for thinking that some templates have (`enable_thinking`); none: as the
    /// template has it.
    pub fn set_thinking(&mut self, thinking: Option<bool>) {
        self.template.set_thinking(thinking);
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Arc<Tokenizer> {
        &self.tokenizer
    }

    /// Whether the template knows tools.
    pub fn native_tools(&self) -> bool {
        self.calls.is_some()
    }

    /// The message that a text spells. `turn` makes the ids of tool calls unique.
    pub(crate) fn parse_text(&self, text: &str, turn: u32) -> Message {
        let ParsedReply { thinking, text, calls } = parse_reply(text, self.calls);
        let mut parts = Vec::new();
        if !thinking.is_empty() {
            parts.push(Part::Thinking(thinking));
        }
        if !text.is_empty() || calls.is_empty() {
            parts.push(Part::Text(text));
        }
        for (number, mut call) in calls.into_iter().enumerate() {
            call.id = format!("call-{turn}-{number}");
            parts.push(Part::ToolCall(call));
        }
        Message { role: Role::Assistant, parts, metadata: Vec::new() }
    }

    fn pieces(
        &self,
        messages: &[Message],
        tools: &[ToolDefinition],
        texts: &Arc<Texts>,
    ) -> Result<Vec<Piece>, FormatError> {
        if !tools.is_empty() && !self.native_tools() {
            return Err(FormatError(
                "the model's template knows no tools; use tool calls written as text".to_owned(),
            ));
        }
        let is_special = |text: &str| self.tokenizer.spells_special(text);
        let rendered = self.template.render(messages, tools, texts, &is_special)?;
        texts.cut(&rendered)
    }

    fn encode_pieces(&self, pieces: &[Piece]) -> Vec<u32> {
        self.tokenizer.encode_parts(pieces.iter().map(|piece| match piece {
            Piece::Template(text) => tokenizer::Part::Template(text),
            Piece::Text(_, text) => tokenizer::Part::Text(text),
        }))
    }
}

impl ChatFormat for TemplateFormat {
    fn render(
        &self,
        messages: &[Message],
        tools: &[ToolDefinition],
    ) -> Result<Vec<u32>, FormatError> {
        let texts = Arc::new(Texts::default());
        let mut ids = self.encode_pieces(&self.pieces(messages, tools, &texts)?);
        if let (Some(begin), true) = self.tokenizer.begin()
            && ids.first() != Some(&begin)
        {
            ids.insert(0, begin);
        }
        Ok(ids)
    }

    /// What the template writes behind an assistant's text: it is run with a reply that stands
    /// for the real one, and its output is cut behind that reply's text.
    fn render_continuation(
        &self,
        messages: &[Message],
        tools: &[ToolDefinition],
        ended: bool,
    ) -> Result<Vec<u32>, FormatError> {
        let texts = Arc::new(Texts::default());
        let mut history = Vec::with_capacity(messages.len() + 2);
        history.push(Message::text(Role::User, "-"));
        history.push(Message::text(Role::Assistant, "-"));
        history.extend_from_slice(messages);
        let pieces = self.pieces(&history, tools, &texts)?;
        // The template is given the texts of messages in order, so the reply's is the second.
        let reply = pieces
            .iter()
            .position(|piece| matches!(piece, Piece::Text(number, _) if *number == 1))
            .ok_or_else(|| FormatError("the template leaves out a reply's text".to_owned()))?;
        let ids = self.encode_pieces(pieces.get(reply + 1..).unwrap_or_default());
        // The end token is already there, whichever the model chose.
        let skip = usize::from(ended && ids.first().is_some_and(|id| self.tokenizer.is_end(*id)));
        Ok(ids.get(skip..).unwrap_or_default().to_vec())
    }

    fn parse(&self, response: &[u32]) -> Message {
        self.parse_text(&self.tokenizer.decode(response), 0)
    }

    fn encode(&self, text: &str) -> Vec<u32> {
        self.tokenizer.encode(text)
    }

    fn spell(&self, id: u32, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(self.tokenizer.bytes(id));
    }

    fn is_end(&self, id: u32) -> bool {
        self.tokenizer.is_end(id)
    }
}

#[cfg(test)]
pub(crate) mod golden_tests;
#[cfg(test)]
mod known_tests;
#[cfg(test)]
mod tests;
