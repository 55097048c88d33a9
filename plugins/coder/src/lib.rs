//! `coder`: a coding agent with the tools bash, view, edit and submit.
//!
//! Where the policy has native tools it gets them; elsewhere tools are fenced blocks, which the
//! prompt `text-tools` documents. A reply of either kind is understood in both cases. Malformed
//! calls are answered with failed results, never with an error of the episode.
//!
//! It ends with `submitted` when the model submits. It gives up, with the file it last changed as
//! the answer, when turns or a budget are used up, when the history does not fit the model even
//! after beginning again, or when the model stops using tools.

mod action;
mod files;
mod prompts;

use action::{Action, Bash, Edit, Submit, View};
use fulgurite_sdk::harness::*;

/// Which tool format is used.
#[derive(Clone, Copy, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum Format {
    /// Native where the policy has it, else text.
    Auto,
    /// Native calls.
    Native,
    /// Fenced blocks.
    Text,
}

#[derive(Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Config {
    /// Replies before it gives up.
    max_turns: u32,
    /// Which tool format is used.
    tools: Format,
    /// Bytes of a tool's result that the model gets to see.
    output_bytes: usize,
    /// Milliseconds that one command has; the run's setting otherwise.
    command_timeout_ms: Option<u32>,
    /// Tokens of one reply at most; the run's setting otherwise.
    max_tokens: Option<u32>,
    /// Sampling temperature; the run's setting otherwise.
    temperature: Option<f32>,
    /// How often it begins again when the history does not fit the model.
    max_restarts: u32,
    /// Replies in a row without a tool before it gives up.
    max_idle: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            max_turns: 30,
            tools: Format::Auto,
            output_bytes: 8_000,
            command_timeout_ms: None,
            max_tokens: None,
            temperature: None,
            max_restarts: 2,
            max_idle: 3,
        }
    }
}

struct Coder;

impl Harness for Coder {
    type Config = Config;

    fn describe() -> Description {
        Description::new("coder", env!("CARGO_PKG_VERSION"))
            .prompt("system", prompts::SYSTEM)
            .prompt("text-tools", prompts::TEXT_TOOLS)
            .prompt("task", prompts::TASK)
            .prompt("reminder", prompts::REMINDER)
            .prompt("restart", prompts::RESTART)
            .tool::<Bash>()
            .tool::<View>()
            .tool::<Edit>()
            .tool::<Submit>()
            .wants(Capability::Exec)
            .wants(Capability::Workspace)
    }

    fn run(episode: Episode<Config>) -> Result<Outcome, Failure> {
        Session::new(episode).run()
    }
}

/// What became of an action.
enum Step {
    /// A result for the model, and whether the tool failed.
    Result(String, bool),
    /// The answer.
    Submitted(String),
    /// No further action will work.
    Over(String),
}

/// One episode's state.
struct Session {
    episode: Episode<Config>,
    options: Options,
    /// What was done, in few words, for the summary after a restart.
    done: Vec<String>,
    last_result: String,
    last_edited: Option<String>,
    restarts: u32,
}

impl Session {
    fn new(episode: Episode<Config>) -> Self {
        let options = Options {
            max_tokens: episode.config.max_tokens,
            temperature: episode.config.temperature,
            ..Options::default()
        };
        let (done, last_result) = (Vec::new(), String::new());
        Self { episode, options, done, last_result, last_edited: None, restarts: 0 }
    }

    fn run(mut self) -> Result<Outcome, Failure> {
        let mut conversation = match self.open() {
            Ok(conversation) => conversation,
            Err(error) => return self.end(error),
        };
        let input = &self.episode.task.input;
        let mut next = self.episode.prompts.fill("task", &[("input", input)]).into_messages();
        let mut idle = 0;
        for _ in 0..self.episode.config.max_turns {
            let reply = match self.send(&mut conversation, next) {
                Ok(reply) => reply,
                Err(error) => return self.end(error),
            };
            let calls: Vec<&ToolCall> = reply.tool_calls().collect();
            let (messages, ending) = if calls.is_empty() {
                self.follow_text(&reply.text())
            } else {
                self.follow_calls(&calls)
            };
            match ending {
                Some(Step::Submitted(answer)) => return Ok(Outcome::submitted(answer)),
                Some(Step::Over(reason)) => return Ok(self.give_up(&reason)),
                _ => {}
            }
            idle = if messages.is_empty() { idle + 1 } else { 0 };
            if idle >= self.episode.config.max_idle {
                return Ok(self.give_up("the model stopped using tools"));
            }
            next = if messages.is_empty() {
                self.episode.prompts.get("reminder").into_messages()
            } else {
                messages
            };
        }
        Ok(self.give_up("all turns are used up"))
    }

    fn open(&self) -> Result<Conversation, LlmError> {
        let native = match self.episode.config.tools {
            Format::Native => true,
            Format::Text => false,
            Format::Auto => model_info("policy")?.native_tools,
        };
        let system = self.episode.prompts.get("system");
        let opening = Conversation::with("policy").agent("coder");
        if native {
            opening
                .system(system)
                .tool::<Bash>()
                .tool::<View>()
                .tool::<Edit>()
                .tool::<Submit>()
                .open()
        } else {
            opening.system(format!("{system}\n\n{}", self.episode.prompts.get("text-tools"))).open()
        }
    }

    /// Sends; where the history does not fit, begins again with a summary.
    fn send(
        &mut self,
        conversation: &mut Conversation,
        messages: Vec<Message>,
    ) -> Result<Reply, LlmError> {
        let mut answer = conversation.send_with(messages, &self.options);
        while matches!(answer, Err(LlmError::ContextLength))
            && self.restarts < self.episode.config.max_restarts
        {
            self.restarts += 1;
            conversation.restart(Vec::<Message>::new(), "the history does not fit the model")?;
            answer = conversation.send_with(self.summary(), &self.options);
        }
        answer
    }

    /// What the model is told when it begins again: less each time.
    fn summary(&self) -> String {
        let share = self.episode.config.output_bytes / 2 / self.restarts.max(1) as usize;
        let done = self.done.join("\n");
        self.episode.prompts.fill(
            "restart",
            &[
                ("input", &self.episode.task.input),
                ("done", if done.is_empty() { "nothing yet" } else { &done }),
                ("last", &clip(&self.last_result, share)),
            ],
        )
    }

    /// Does what native calls ask for. Every call gets a result.
    fn follow_calls(&mut self, calls: &[&ToolCall]) -> (Vec<Message>, Option<Step>) {
        let mut results = Vec::new();
        for call in calls {
            match Action::from_call(call).map(|action| self.act(&action)) {
                Ok(Step::Result(text, failed)) => {
                    results.push(if failed { call.fail(text) } else { call.answer(text) });
                }
                Ok(ending) => return (Vec::new(), Some(ending)),
                Err(problem) => {
                    trace::event("malformed-call", &[("tool", &call.name), ("problem", &problem)]);
                    results.push(call.fail(problem));
                }
            }
        }
        (results.into_messages(), None)
    }

    /// Does what fenced blocks ask for. No block, no messages.
    fn follow_text(&mut self, text: &str) -> (Vec<Message>, Option<Step>) {
        let mut results = Vec::new();
        for action in action::from_text(text) {
            match action.map(|action| (action.summary(), self.act(&action))) {
                Ok((summary, Step::Result(text, failed))) => {
                    let mark = if failed { " (failed)" } else { "" };
                    let head = summary.lines().next().unwrap_or_default().to_string();
                    results.push(format!("[{head}]{mark}\n{text}"));
                }
                Ok((_, ending)) => return (Vec::new(), Some(ending)),
                Err(problem) => {
                    trace::event("malformed-call", &[("problem", &problem)]);
                    results.push(format!("[malformed block] (failed)\n{problem}"));
                }
            }
        }
        if results.is_empty() {
            return (Vec::new(), None);
        }
        (results.join("\n\n").into_messages(), None)
    }

    fn act(&mut self, action: &Action) -> Step {
        let step = match action {
            Action::Bash(bash) => self.bash(bash),
            Action::View(view) => shown(files::view(view)),
            Action::Edit(edit) => {
                let done = files::edit(edit);
                if done.is_ok() {
                    self.last_edited = Some(edit.path.clone());
                }
                shown(done)
            }
            Action::Submit(submit) => self.submit(submit),
        };
        if let Step::Result(text, failed) = step {
            let text = clip(&text, self.episode.config.output_bytes);
            let mark = if failed { " (failed)" } else { "" };
            self.done.push(format!("- {}{mark}", clip(&action.summary(), 200)));
            // The summary must fit where the history did not.
            if self.done.len() > 40 {
                self.done.remove(0);
            }
            self.last_result.clone_from(&text);
            return Step::Result(text, failed);
        }
        step
    }

    fn bash(&self, bash: &Bash) -> Step {
        let mut command = Command::line(&bash.command);
        if let Some(milliseconds) = self.episode.config.command_timeout_ms {
            command = command.timeout_ms(milliseconds);
        }
        match exec::command(command) {
            Ok(output) => {
                let text = output.transcript(self.episode.config.output_bytes);
                Step::Result(text, !output.success())
            }
            Err(ExecError::Cancelled) => Step::Over("the episode is being cancelled".to_string()),
            // Files can still be changed and submitted.
            Err(error) => Step::Result(error.explain(), true),
        }
    }

    fn submit(&self, submit: &Submit) -> Step {
        match (&submit.file, &submit.answer) {
            (Some(path), _) if !path.trim().is_empty() => match files::read(path) {
                Ok(text) => Step::Submitted(text),
                Err(problem) => Step::Result(problem, true),
            },
            (_, Some(answer)) => Step::Submitted(answer.clone()),
            _ => Step::Submitted(self.last_contents()),
        }
    }

    /// The file that was changed last, as it is now.
    fn last_contents(&self) -> String {
        self.last_edited.as_deref().and_then(|path| files::read(path).ok()).unwrap_or_default()
    }

    fn give_up(&self, reason: &str) -> Outcome {
        Outcome::gave_up(self.last_contents()).note("reason", reason)
    }

    /// The end after an error of the model: limits of the episode are no failure of this program.
    fn end(&self, error: LlmError) -> Result<Outcome, Failure> {
        match error {
            LlmError::Budget(_) | LlmError::ContextLength | LlmError::Cancelled => {
                Ok(self.give_up(&error.explain()))
            }
            error => Err(error.into()),
        }
    }
}

fn shown(result: Result<String, String>) -> Step {
    match result {
        Ok(text) => Step::Result(text, false),
        Err(problem) => Step::Result(problem, true),
    }
}

fulgurite_sdk::export_harness!(Coder);
