//! HumanEval (Chen et al., 2021, <https://arxiv.org/abs/2107.03374>) as a task file.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{BufRead as _, BufReader, Read as _},
    path::Path,
};

use anyhow::{Context as _, Result, bail};
use flate2::read::GzDecoder;
use fulgurite_trace::{Message, Part, ReferenceReply, Role, Task, ToolCall, Workspace};
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// Unpacked, the whole data set has 220 KB; what is much larger is something else.
const MOST_BYTES: u64 = 64 << 20;

/// The file that an agent with a workspace leaves its work in.
const FILE: &str = "solution.py";

/// A row of the data set.
#[derive(Deserialize)]
struct Problem {
    task_id: String,
    prompt: String,
    entry_point: String,
    canonical_solution: String,
    test: String,
}

/// Reads the data set, packed with gzip or not, in its order.
pub(crate) fn read(path: &Path, limit: Option<usize>) -> Result<Vec<Task>> {
    let open = || File::open(path).with_context(|| format!("cannot read {}", path.display()));
    let mut magic = [0; 2];
    let packed = open()?.read(&mut magic).is_ok_and(|read| read == 2) && magic == [0x1f, 0x8b];
    let reader: Box<dyn std::io::Read> =
        if packed { Box::new(GzDecoder::new(open()?)) } else { Box::new(open()?) };
    let mut tasks = Vec::new();
    for (line, row) in BufReader::new(reader.take(MOST_BYTES)).lines().enumerate() {
        if limit.is_some_and(|limit| tasks.len() >= limit) {
            break;
        }
        let place = || format!("{}:{}", path.display(), line + 1);
        let row = row.with_context(place)?;
        if row.trim().is_empty() {
            continue;
        }
        let problem: Problem = serde_json::from_str(&row)
            .with_context(|| format!("{}: this is no row of HumanEval", place()))?;
        tasks.push(task(problem));
    }
    if tasks.is_empty() {
        bail!("{} holds no problem", path.display());
    }
    Ok(tasks)
}

fn task(problem: Problem) -> Task {
    let Problem { task_id, prompt, entry_point, canonical_solution, test } = problem;
    let solution = format!("{prompt}{canonical_solution}");
    let input = format!(
        "Complete this Python function. If you have a workspace, leave the complete code, imports \
         included, in `{FILE}`; otherwise answer with it.\n\n```python\n{prompt}```\n"
    );
    let grading = Map::from_iter([
        ("mode".to_owned(), json!("function")),
        ("prompt".to_owned(), prompt.into()),
        ("entry_point".to_owned(), entry_point.into()),
        ("test".to_owned(), test.into()),
        ("file".to_owned(), FILE.into()),
    ]);
    let references = BTreeMap::from([
        ("solve".to_owned(), vec![ReferenceReply::Text(fenced(&solution))]),
        ("coder/native".to_owned(), coder_native(&solution)),
        ("coder/text".to_owned(), coder_text(&solution)),
    ]);
    Task {
        id: task_id,
        input,
        metadata: vec![("dataset".to_owned(), "human-eval".to_owned())],
        workspace: Workspace::Empty,
        grading,
        references,
    }
}

fn fenced(solution: &str) -> String {
    format!("```python\n{solution}\n```\n")
}

/// Writes the file, looks whether Python takes it, submits it.
fn coder_native(solution: &str) -> Vec<ReferenceReply> {
    let call = |turn: usize, name: &str, arguments: Value| {
        ReferenceReply::Message(Message {
            role: Role::Assistant,
            parts: vec![Part::ToolCall(ToolCall {
                id: format!("call-{turn}"),
                name: name.to_owned(),
                arguments: arguments.to_string(),
                problem: None,
            })],
            metadata: Vec::new(),
        })
    };
    vec![
        call(0, "edit", json!({ "path": FILE, "old": "", "new": solution })),
        call(1, "bash", json!({ "command": format!("python {FILE} && wc -l {FILE}") })),
        call(2, "submit", json!({ "file": FILE })),
    ]
}

fn coder_text(solution: &str) -> Vec<ReferenceReply> {
    vec![
        ReferenceReply::Text(format!(
            "```edit {FILE}\n<<<<<<< SEARCH\n=======\n{solution}\n>>>>>>> REPLACE\n```\n"
        )),
        ReferenceReply::Text(format!("```bash\npython {FILE} && wc -l {FILE}\n```\n")),
        ReferenceReply::Text(format!("```submit {FILE}\n```\n")),
    ]
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    const ROW: &str = r#"{"task_id":"HumanEval/0","prompt":"def f():\n","entry_point":"f","canonical_solution":"    return 1\n","test":"def check(candidate):\n    assert candidate() == 1\n"}"#;

    #[test]
    fn a_row_becomes_a_task_with_hidden_tests_and_references() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        writeln!(file, "{ROW}").unwrap();
        let tasks = read(file.path(), None).unwrap();
        let task = &tasks[0];
        assert_eq!(task.id, "HumanEval/0");
        assert!(!task.input.contains("assert"));
        assert_eq!(task.grading["entry_point"], "f");
        assert_eq!(task.references_for("coder", "native").unwrap().len(), 3);
        assert!(task.references_for("solve", "text").is_some());
    }

    #[test]
    fn a_broken_row_names_its_line() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        writeln!(file, "{ROW}\n{{}}").unwrap();
        let error = read(file.path(), None).unwrap_err();
        assert!(error.to_string().contains(":2: this is no row"), "{error}");
        assert_eq!(read(file.path(), Some(1)).unwrap().len(), 1);
    }
}
