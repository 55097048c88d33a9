//! Descriptions, prompts, outcomes and failures: methods on the contract's own types.

use std::collections::BTreeMap;

use super::{
    BudgetKind, Capability, Description, ExecError, Failure, LlmError, Outcome, Prompt, Status,
    Tool, ToolDefinition,
};
use crate::Metadata;

impl Description {
    /// A harness of this name and version that speaks to one model, in the role `policy`, and
    /// wants nothing else. The schema of its configuration is filled in by the export macro.
    pub fn new(name: &str, version: &str) -> Self {
        Self {
            name: name.to_string(),
            version: version.to_string(),
            config_schema: String::new(),
            prompts: Vec::new(),
            model_roles: vec!["policy".to_string()],
            tools: Vec::new(),
            wants: vec![Capability::Llm],
        }
    }

    /// Names a text that may be tuned from outside; read it with [`Prompts::get`].
    pub fn prompt(mut self, name: &str, default: &str) -> Self {
        self.prompts.push(Prompt { name: name.to_string(), default: default.to_string() });
        self
    }

    /// Adds a model role.
    pub fn model_role(mut self, name: &str) -> Self {
        self.model_roles.push(name.to_string());
        self
    }

    /// Names a tool that models are offered.
    pub fn tool<T: Tool>(self) -> Self {
        self.tool_definition(T::definition())
    }

    /// Names a tool whose schema was made by hand.
    pub fn tool_definition(mut self, tool: ToolDefinition) -> Self {
        self.tools.push(tool);
        self
    }

    /// Asks for commands, a workspace, or both.
    pub fn wants(mut self, capability: Capability) -> Self {
        if !self.wants.contains(&capability) {
            self.wants.push(capability);
        }
        self
    }
}

/// The prompts of a description, as the run tuned them (`prompts` in the configuration).
#[derive(Debug, Clone, Default)]
pub struct Prompts {
    texts: BTreeMap<String, String>,
}

impl Prompts {
    pub(super) fn new(named: Vec<Prompt>, replaced: BTreeMap<String, String>) -> Self {
        let mut texts: BTreeMap<String, String> =
            named.into_iter().map(|prompt| (prompt.name, prompt.default)).collect();
        texts.extend(replaced);
        Self { texts }
    }

    /// The text of a prompt that the description names; empty for any other name.
    pub fn get(&self, name: &str) -> &str {
        self.texts.get(name).map(String::as_str).unwrap_or_default()
    }

    /// The text with each `{name}` of `values` replaced. Other braces stay.
    pub fn fill(&self, name: &str, values: &[(&str, &str)]) -> String {
        values.iter().fold(self.get(name).to_string(), |text, (name, value)| {
            text.replace(&format!("{{{name}}}"), value)
        })
    }
}

impl Outcome {
    /// The agent holds the task to be done.
    pub fn submitted(answer: impl Into<String>) -> Self {
        Self { status: Status::Submitted, answer: answer.into(), metadata: Metadata::new() }
    }

    /// The agent stopped without holding the task to be done; the answer is what it has.
    pub fn gave_up(answer: impl Into<String>) -> Self {
        Self { status: Status::GaveUp, answer: answer.into(), metadata: Metadata::new() }
    }

    /// Adds a name and a value.
    pub fn note(mut self, name: &str, value: impl Into<String>) -> Self {
        self.metadata.push((name.to_string(), value.into()));
        self
    }
}

impl Failure {
    /// A failure of the harness itself.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), metadata: Metadata::new() }
    }
}

impl LlmError {
    /// Whether every later call of the episode will fail the same way: a budget is used up, or
    /// the episode is being cancelled.
    pub fn is_final(&self) -> bool {
        matches!(self, LlmError::Budget(_) | LlmError::Cancelled)
    }

    /// The error in words.
    pub fn explain(&self) -> String {
        match self {
            LlmError::RateLimited => "the model is overloaded".to_string(),
            LlmError::ContextLength => "history and reply do not fit the model".to_string(),
            LlmError::Budget(kind) => used_up(*kind),
            LlmError::Cancelled => "the episode is being cancelled".to_string(),
            LlmError::Invalid(text) => format!("the request is wrong: {text}"),
            LlmError::Unsupported(text) => format!("the policy cannot do this: {text}"),
            LlmError::Busy => "a reply of this conversation is still pending".to_string(),
            LlmError::Unavailable => "the model cannot be reached".to_string(),
            LlmError::Timeout => "the model took too long".to_string(),
            LlmError::Other((code, text)) => format!("error {code}: {text}"),
        }
    }
}

/// Which budget is used up, in words.
fn used_up(kind: BudgetKind) -> String {
    let kind = match kind {
        BudgetKind::Tokens => "tokens",
        BudgetKind::Turns => "turns",
        BudgetKind::Commands => "commands",
        BudgetKind::Time => "time",
        BudgetKind::Fuel => "fuel",
    };
    format!("the budget is used up: {kind}")
}

impl ExecError {
    /// Whether every later command will fail the same way.
    pub fn is_final(&self) -> bool {
        !matches!(self, ExecError::Invalid(_) | ExecError::Other(_))
    }

    /// The error in words.
    pub fn explain(&self) -> String {
        match self {
            ExecError::Invalid(text) => format!("the command is wrong: {text}"),
            ExecError::Budget(kind) => used_up(*kind),
            ExecError::Cancelled => "the episode is being cancelled".to_string(),
            ExecError::Denied => "commands are not granted".to_string(),
            ExecError::Unavailable => "commands cannot be run here".to_string(),
            ExecError::Other((code, text)) => format!("error {code}: {text}"),
        }
    }
}

impl From<LlmError> for Failure {
    fn from(error: LlmError) -> Self {
        Self::new(error.explain())
    }
}

impl From<ExecError> for Failure {
    fn from(error: ExecError) -> Self {
        Self::new(error.explain())
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::new(error.to_string())
    }
}

impl From<String> for Failure {
    fn from(message: String) -> Self {
        Self::new(message)
    }
}

impl From<&str> for Failure {
    fn from(message: &str) -> Self {
        Self::new(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_named_in_words() {
        let error = LlmError::Budget(BudgetKind::Turns);
        assert_eq!(error.explain(), "the budget is used up: turns");
    }

    #[test]
    fn tuned_prompts_replace_defaults() {
        let named = vec![
            Prompt { name: "system".into(), default: "old".into() },
            Prompt { name: "task".into(), default: "Do {task} {now}".into() },
        ];
        let prompts = Prompts::new(named, BTreeMap::from([("system".into(), "new".into())]));
        assert_eq!(prompts.get("system"), "new");
        assert_eq!(prompts.fill("task", &[("task", "it")]), "Do it {now}");
        assert_eq!(prompts.get("none"), "");
    }
}
