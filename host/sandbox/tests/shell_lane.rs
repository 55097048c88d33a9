//! The lane as episodes use it: requests, programs, streams.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    clippy::unwrap_used,
    reason = "helpers of tests fail the test"
)]

mod shell_support;

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use fulgurite_sandbox::{
    CommandLimits, Lane, LaneError, OutputState, ProgramCall, ProgramEnd, ProgramRunner, Tree,
};
use fulgurite_trace::file::FileTree;
use fulgurite_trace::{CommandOutput, CommandRequest, CommandStop};
use shell_support::{Entries, Entry, request_with, tree};

/// Arguments, working folder and standard input of one call.
type Call = (Vec<String>, String, Vec<u8>);

/// A runner whose one program, `python3`, does what its first argument says.
#[derive(Default)]
struct Scripted {
    calls: Mutex<Vec<Call>>,
}

#[async_trait]
impl ProgramRunner for Scripted {
    fn programs(&self) -> Vec<String> {
        vec!["python3".to_owned(), "python".to_owned()]
    }

    async fn run(&self, call: ProgramCall) -> Result<ProgramEnd, LaneError> {
        let record = (call.argv.clone(), call.cwd.clone(), call.stdin.clone());
        self.calls.lock().unwrap().push(record);
        let mut end = ProgramEnd { status: 0, stop: None, fuel_used: 1_000 };
        match call.argv.get(1).map(String::as_str) {
            Some("both") => {
                call.output.stdout(b"out1\n");
                call.output.stderr(b"err\n");
                call.output.stdout(b"out2\n");
            }
            Some("env") => {
                for (name, value) in &call.env {
                    call.output.stdout(format!("{name}={value}\n").as_bytes());
                }
            }
            Some("flood") => {
                let chunk = vec![b'x'; 64 << 10];
                let mut full = 0;
                for _ in 0..2_000 {
                    if call.output.stdout(&chunk) == OutputState::Full {
                        full += 1;
                    }
                }
                end.status = i32::from(full > 0);
            }
            Some("fail") => end.status = 3,
            Some("trap") => end.stop = Some(CommandStop::Trap),
            Some("memory") => end.stop = Some(CommandStop::Memory),
            Some("spin") => {
                end.fuel_used = call.fuel;
                end.stop = Some(CommandStop::Timeout);
            }
            Some("broken") => {
                return Err(LaneError::Program {
                    program: call.program,
                    reason: "no instance".to_owned(),
                });
            }
            Some("yield") => {
                tokio::task::yield_now().await;
                call.output.stdout(b"later\n");
            }
            _ => {
                call.output.stdout(call.argv.join(" ").as_bytes());
                call.output.stdout(b"\n");
                call.output.stdout(&call.stdin);
            }
        }
        Ok(end)
    }
}

fn run_in(
    request: &CommandRequest,
    files: &Arc<Tree>,
) -> (Result<CommandOutput, LaneError>, Arc<Scripted>) {
    let runner = Arc::new(Scripted::default());
    let lane = Lane::new(runner.clone());
    let files: Arc<dyn FileTree> = Arc::clone(files) as Arc<dyn FileTree>;
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let result = runtime.block_on(lane.run(request, files, &CommandLimits::default()));
    (result, runner)
}

fn line(text: &str) -> CommandOutput {
    let files = Entries::from([
        ("run.py".to_owned(), Entry::File(b"#!/usr/bin/env python3\nprint(1)\n".to_vec())),
        ("names".to_owned(), Entry::File(b"one\ntwo\n".to_vec())),
        ("sub/x".to_owned(), Entry::File(b"x\n".to_vec())),
    ]);
    run_in(&CommandRequest::line(text), &tree(&files)).0.unwrap()
}

fn stdout(text: &str) -> String {
    String::from_utf8(line(text).stdout.bytes).unwrap()
}

#[test]
fn programs_take_arguments_streams_and_pipes() {
    assert_eq!(stdout("python3 a 'b c' | tr a-z A-Z"), "PYTHON3 A B C\n");
    assert_eq!(stdout("echo in | python x"), "python x\nin\n");
    assert_eq!(stdout("/usr/bin/python3 x"), "python3 x\n");
    assert_eq!(stdout("./run.py a"), "python3 ./run.py a\n");
    assert_eq!(stdout("python3 both 2>&1 | cat -n"), "     1\tout1\n     2\terr\n     3\tout2\n");
    assert_eq!(stdout("python3 both 2>/dev/null > f; wc -l f"), "2 f\n");
    assert_eq!(stdout("x=$(python3 both 2>&1); echo \"$x\" | wc -l"), "3\n");
    assert_eq!(stdout("python3 fail; echo $?; python3 fail || echo failed"), "3\nfailed\n");
    assert_eq!(stdout("A=1 python3 env | grep '^A='; python3 env | grep -c '^A='"), "A=1\n0\n");
    assert_eq!(stdout("python3 yield"), "later\n");
    assert_eq!(stdout("find names run.py -exec python3 {} \\;"), "python3 names\npython3 run.py\n");
    assert_eq!(stdout("xargs python3 < names"), "python3 one two\n");
}

#[test]
fn a_program_in_a_loop_leaves_the_loops_input_alone() {
    assert_eq!(
        stdout("while read n; do python3 got $n > /dev/null; echo $n; done < names"),
        "one\ntwo\n"
    );
}

#[test]
fn a_program_sees_the_working_folder() {
    let files = Entries::from([("sub/x".to_owned(), Entry::File(Vec::new()))]);
    let (_, runner) = run_in(&CommandRequest::line("cd sub; python3 a"), &tree(&files));
    assert_eq!(runner.calls.lock().unwrap()[0].1, "/sub");
    let mut request = CommandRequest::argv(["python3", "a"]);
    request.cwd = Some("sub".to_owned());
    request.stdin = b"given".to_vec();
    let (_, runner) = run_in(&request, &tree(&files));
    let calls = runner.calls.lock().unwrap();
    assert_eq!((calls[0].1.as_str(), calls[0].2.as_slice()), ("/sub", &b"given"[..]));
}

#[test]
fn a_stopped_program_is_told_apart() {
    for (what, status, stop) in [
        ("python3 trap", 134, Some(CommandStop::Trap)),
        ("python3 memory", 137, Some(CommandStop::Memory)),
        ("python3 spin", 124, Some(CommandStop::Timeout)),
        // A shell outlives its children, as everywhere.
        ("python3 trap; echo after", 0, None),
        ("python3 trap || true", 0, None),
        ("timeout 1 python3 spin; echo $?", 0, None),
        ("timeout 1 python3 spin", 124, None),
        ("python3 flood | wc -c", 137, Some(CommandStop::Memory)),
    ] {
        let output = line(what);
        assert_eq!((output.status, output.stopped), (status, stop), "{what}");
    }
    let output = line("python3 flood");
    assert_eq!(output.stdout.total, 2_000 * (64 << 10));
    assert_eq!(output.status, 0);
}

#[test]
fn a_broken_runner_is_an_error_and_no_result() {
    let (result, _) =
        run_in(&CommandRequest::line("python3 broken; echo on"), &tree(&Entries::new()));
    assert!(matches!(result, Err(LaneError::Program { .. })), "{result:?}");
}

#[test]
fn arguments_are_literal_without_a_shell() {
    let files = tree(&Entries::new());
    let request = CommandRequest::argv(["echo", "$HOME", "*", ";", "|", "a b"]);
    let output = request_with(&request, &files, &CommandLimits::default());
    assert_eq!(output.stdout.bytes, b"$HOME * ; | a b\n");
    let output = request_with(
        &CommandRequest::argv(Vec::<String>::new()),
        &files,
        &CommandLimits::default(),
    );
    assert_eq!(output.status, 0);
    let output =
        request_with(&CommandRequest::argv(["nonesuch"]), &files, &CommandLimits::default());
    assert_eq!(output.status, 127);
    assert!(String::from_utf8_lossy(&output.stderr.bytes).contains("what exists here"));
}

#[test]
fn bad_requests_are_errors() {
    let files = tree(&Entries::new());
    let mut request = CommandRequest::line("pwd");
    request.cwd = Some("missing".to_owned());
    assert!(matches!(run_in(&request, &files).0, Err(LaneError::Invalid(_))));
    let mut request = CommandRequest::line("pwd");
    request.env = vec![("A=B".to_owned(), "x".to_owned())];
    assert!(matches!(run_in(&request, &files).0, Err(LaneError::Invalid(_))));
}

#[test]
fn a_files_quota_is_a_failing_command() {
    use fulgurite_sandbox::{Lower, Quota};
    let quota = Quota { bytes: 1_000, ..Quota::default() };
    let files = Arc::new(Tree::new(Lower::empty(), quota));
    let request = CommandRequest::line("seq 1 10000 > big; echo $?; ls");
    let output = request_with(&request, &files, &CommandLimits::default());
    let shown = String::from_utf8_lossy(&output.stdout.bytes).into_owned();
    assert_eq!(shown, "1\nbig\n", "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr.bytes).contains("No space left on device"));
}

#[test]
fn touched_files_are_the_newest() {
    assert_eq!(
        stdout("echo 1 > a; echo 2 > b; [ b -nt a ] && touch a && [ a -nt b ] && find . -newer b"),
        "./a\n",
    );
}

#[test]
fn names_are_sorted_and_hold_programs_and_commands() {
    let lane = Lane::new(Arc::new(Scripted::default()));
    let names = lane.programs();
    assert!(names.is_sorted());
    for name in ["python3", "grep", "cd", "find"] {
        assert!(names.iter().any(|known| known == name), "{name}");
    }
}

#[test]
fn handles_are_given_back() {
    let files = tree(&Entries::from([("a".to_owned(), Entry::File(b"x\n".to_vec()))]));
    for _ in 0..200 {
        let text = "cat a > b; grep -r x . | sort > c; while read l; do echo $l; done < a; find . -type f | xargs wc; ls missing; while true; do cat a; break; done";
        let output = request_with(&CommandRequest::line(text), &files, &CommandLimits::default());
        assert_eq!(output.stopped, None);
    }
    assert_eq!(files.usage().handles, 0);
}
