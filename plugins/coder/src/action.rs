//! What a model can ask for, and how it asks: native tool calls or fenced blocks.

use fulgurite_sdk::harness::{Block, Deserialize, JsonSchema, Tool, ToolCall, fenced_blocks};

/// Arguments of `bash`.
#[derive(Debug, PartialEq, Deserialize, JsonSchema)]
pub(crate) struct Bash {
    /// The shell line, or several lines.
    pub(crate) command: String,
}

impl Tool for Bash {
    const NAME: &'static str = "bash";
    const DESCRIPTION: &'static str =
        "Runs a shell line in /workspace and shows its output and exit status.";
}

/// Arguments of `view`.
#[derive(Debug, PartialEq, Deserialize, JsonSchema)]
pub(crate) struct View {
    /// The file or folder.
    pub(crate) path: String,
    /// The first line to show, from 1.
    #[serde(default)]
    pub(crate) first: Option<usize>,
    /// The last line to show.
    #[serde(default)]
    pub(crate) last: Option<usize>,
}

impl Tool for View {
    const NAME: &'static str = "view";
    const DESCRIPTION: &'static str =
        "Shows a file with line numbers, all of it or some lines; lists a folder.";
}

/// Arguments of `edit`.
#[derive(Debug, PartialEq, Deserialize, JsonSchema)]
pub(crate) struct Edit {
    /// The file.
    pub(crate) path: String,
    /// The text to replace. It must occur exactly once; empty to make a new file.
    pub(crate) old: String,
    /// The text to put there.
    pub(crate) new: String,
}

impl Tool for Edit {
    const NAME: &'static str = "edit";
    const DESCRIPTION: &'static str =
        "Replaces a text that occurs exactly once in a file, or makes a new file.";
}

/// Arguments of `submit`.
#[derive(Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Submit {
    /// A file whose contents are the answer.
    pub(crate) file: Option<String>,
    /// The answer itself, where it is not a file.
    pub(crate) answer: Option<String>,
}

impl Tool for Submit {
    const NAME: &'static str = "submit";
    const DESCRIPTION: &'static str =
        "Ends the work: the task is done. Name a file as the answer, give a text, or neither.";
}

/// One thing to do.
#[derive(Debug, PartialEq)]
pub(crate) enum Action {
    /// Run a shell line.
    Bash(Bash),
    /// Show a file or folder.
    View(View),
    /// Change a file.
    Edit(Edit),
    /// Be done.
    Submit(Submit),
}

impl Action {
    /// The action in a few words, for the summary after a restart.
    pub(crate) fn summary(&self) -> String {
        match self {
            Action::Bash(bash) => format!("bash: {}", bash.command.trim()),
            Action::View(view) => format!("view: {}", view.path),
            Action::Edit(edit) => format!("edit: {}", edit.path),
            Action::Submit(_) => "submit".to_string(),
        }
    }

    /// The action of a native call. The error is for the model.
    pub(crate) fn from_call(call: &ToolCall) -> Result<Action, String> {
        match call.name.as_str() {
            Bash::NAME => call.parse().map(Action::Bash),
            View::NAME => call.parse().map(Action::View),
            Edit::NAME => call.parse().map(Action::Edit),
            Submit::NAME => call.parse().map(Action::Submit),
            _ if call.problem.is_some() => call.parse::<Submit>().map(Action::Submit),
            other => Err(format!("there is no tool `{other}`; there are bash, view, edit, submit")),
        }
    }
}

/// The actions of a text, in order. Blocks in other languages are no actions; what is meant as
/// one and malformed is an error for the model.
pub(crate) fn from_text(text: &str) -> Vec<Result<Action, String>> {
    fenced_blocks(text).iter().flat_map(from_block).collect()
}

fn from_block(block: &Block) -> Vec<Result<Action, String>> {
    let known =
        matches!(block.language.as_str(), "bash" | "sh" | "shell" | "view" | "edit" | "submit");
    if !known {
        return Vec::new();
    }
    if !block.closed {
        return vec![Err(format!("the {} block has no closing ```", block.language))];
    }
    match block.language.as_str() {
        "view" => vec![view(&block.info).map(Action::View)],
        "edit" => edits(block),
        "submit" => vec![Ok(Action::Submit(submit(block)))],
        _ if block.body.trim().is_empty() => vec![Err("the bash block is empty".to_string())],
        _ => vec![Ok(Action::Bash(Bash { command: block.body.clone() }))],
    }
}

fn view(info: &str) -> Result<View, String> {
    let (path, lines) = match info.rsplit_once(' ') {
        Some((path, lines)) if lines.contains('-') => match line_range(lines) {
            Some(range) => (path.trim(), Some(range)),
            None => (info, None),
        },
        _ => (info, None),
    };
    if path.is_empty() {
        return Err("the view block names no file: ```view path 1-80".to_string());
    }
    let (first, last) = lines.unzip();
    Ok(View { path: path.to_string(), first, last })
}

fn line_range(text: &str) -> Option<(usize, usize)> {
    let (first, last) = text.split_once('-')?;
    Some((first.parse().ok()?, last.parse().ok()?))
}

fn submit(block: &Block) -> Submit {
    if !block.info.is_empty() {
        Submit { file: Some(block.info.clone()), answer: None }
    } else if block.body.trim().is_empty() {
        Submit::default()
    } else {
        Submit { file: None, answer: Some(block.body.clone()) }
    }
}

/// The replacements of an edit block.
fn edits(block: &Block) -> Vec<Result<Action, String>> {
    if block.info.is_empty() {
        return vec![Err("the edit block names no file: ```edit path".to_string())];
    }
    let mut actions = Vec::new();
    let mut place = Place::Outside;
    let (mut old, mut new) = (String::new(), String::new());
    for line in block.body.split_inclusive('\n') {
        let bare = line.trim_end();
        match place {
            Place::Outside if bare.starts_with("<<<<<<<") => place = Place::Old,
            Place::Outside => {}
            Place::Old if bare == "=======" => place = Place::New,
            Place::Old => old.push_str(line),
            Place::New if bare.starts_with(">>>>>>>") => {
                let path = block.info.clone();
                let (old, new) = (std::mem::take(&mut old), std::mem::take(&mut new));
                actions.push(Ok(Action::Edit(Edit { path, old, new })));
                place = Place::Outside;
            }
            Place::New => new.push_str(line),
        }
    }
    if !matches!(place, Place::Outside) || actions.is_empty() {
        actions.push(Err("the edit block needs the lines `<<<<<<< SEARCH`, `=======` and \
                          `>>>>>>> REPLACE`, in this order"
            .to_string()));
    }
    actions
}

/// Where in an edit block a line stands.
#[derive(Clone, Copy)]
enum Place {
    Outside,
    Old,
    New,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(name: &str, arguments: &str) -> ToolCall {
        ToolCall { id: "1".into(), name: name.into(), arguments: arguments.into(), problem: None }
    }

    #[test]
    fn native_calls_become_actions_or_errors_for_the_model() {
        let bash = Action::from_call(&call("bash", r#"{"command": "ls"}"#)).unwrap();
        assert_eq!(bash, Action::Bash(Bash { command: "ls".into() }));
        assert!(Action::from_call(&call("bash", "{")).unwrap_err().contains("bash"));
        assert!(Action::from_call(&call("rm", "{}")).unwrap_err().contains("no tool `rm`"));
        assert_eq!(
            Action::from_call(&call("submit", "{}")).unwrap(),
            Action::Submit(Submit::default())
        );
    }

    #[test]
    fn blocks_become_actions_in_order() {
        let text = "First:\n```bash\nls\n```\nthen\n```view a b.py 3-9\n```\n```python\nx\n```\n\
                    ```edit a.py\n<<<<<<< SEARCH\nold\n=======\nnew\n>>>>>>> REPLACE\n\
                    <<<<<<< SEARCH\n=======\nmore\n>>>>>>> REPLACE\n```\n```submit a.py\n```\n";
        let actions: Vec<Action> = from_text(text).into_iter().map(Result::unwrap).collect();
        let edit = |old: &str, new: &str| {
            Action::Edit(Edit { path: "a.py".into(), old: old.into(), new: new.into() })
        };
        assert_eq!(
            actions,
            [
                Action::Bash(Bash { command: "ls\n".into() }),
                Action::View(View { path: "a b.py".into(), first: Some(3), last: Some(9) }),
                edit("old\n", "new\n"),
                edit("", "more\n"),
                Action::Submit(Submit { file: Some("a.py".into()), answer: None }),
            ]
        );
    }

    #[test]
    fn malformed_blocks_are_errors_for_the_model() {
        for text in [
            "```bash\nls",
            "```bash\n\n```",
            "```view\n```",
            "```edit\n```",
            "```edit a.py\nnew\n```",
            "```edit a.py\n<<<<<<< SEARCH\nold\n=======\nnew\n```",
        ] {
            let actions = from_text(text);
            assert!(matches!(actions.as_slice(), [Err(_)]), "{text}: {actions:?}");
        }
    }

    #[test]
    fn a_submitted_text_is_the_answer() {
        let actions = from_text("```submit\ndef f():\n    pass\n```");
        let answer = Some("def f():\n    pass\n".to_string());
        assert_eq!(actions, [Ok(Action::Submit(Submit { file: None, answer }))]);
    }
}
