//! Two Python programs at once, standard output of each connected to standard input of the other.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests may fail loudly"
)]

mod support;

use std::{
    num::NonZeroU64,
    time::{Duration, Instant},
};

use fulgurite_runtime::{
    componentize::componentize,
    program::{Program, ProgramEnd, ProgramRequest},
    wasi::{Output, Stdin, connect},
};
use fulgurite_trace::CommandStop;
use support::python::{engine, python, request};
use wasmtime::component::Component;

fn requests(left: &str, right: &str) -> (ProgramRequest, ProgramRequest) {
    let (one, two) = connect();
    let (mut left, mut right) = (request(left), request(right));
    (left.stdin, left.stdout) = (Stdin::Pipe(one.input), Output::Pipe(one.output));
    (right.stdin, right.stdout) = (Stdin::Pipe(two.input), Output::Pipe(two.output));
    (left, right)
}

/// Runs both in one thread.
async fn run(left: &str, right: &str) -> (ProgramEnd, ProgramEnd) {
    let (left, right) = requests(left, right);
    let (left, right) = tokio::join!(python().run(left), python().run(right));
    (left.unwrap(), right.unwrap())
}

fn stderr(end: &ProgramEnd) -> String {
    String::from_utf8(end.stderr.bytes.clone()).unwrap()
}

const ASK: &str = "import sys\n\
    for i in range(5):\n  \
      print(i, flush=True); print(input(), file=sys.stderr)";
const ANSWER: &str = "import sys\n\
    for line in sys.stdin: print(int(line) ** 2, flush=True)";

#[tokio::test]
async fn question_and_answer() {
    let (ask, answer) = run(ASK, ANSWER).await;
    assert_eq!(stderr(&ask), "0\n1\n4\n9\n16\n");
    // The one that asks ends, and the other sees the end of its input.
    assert_eq!((ask.status, answer.status), (0, 0), "{}", stderr(&answer));
    assert!(!ask.starved && !answer.starved);
    assert_eq!(ask.stdout.total, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_do_not_depend_on_who_is_faster() {
    let once = run(ASK, ANSWER).await;
    for _ in 0..3 {
        let (left, right) = requests(ASK, ANSWER);
        let right = tokio::spawn(python().run(right));
        let left = tokio::spawn(python().run(left));
        let both = (left.await.unwrap().unwrap(), right.await.unwrap().unwrap());
        assert_eq!(once, both);
    }
}

#[tokio::test]
async fn end_of_one_is_the_end_of_input_of_the_other() {
    let (_, right) =
        run("pass", "import sys; print(repr(sys.stdin.read()), file=sys.stderr)").await;
    assert_eq!(stderr(&right), "''\n");
    // So it is when the one is stopped.
    let (left, right) = requests(
        "print('partial', flush=True)\nwhile True: pass",
        "import sys; print(repr(sys.stdin.read()), file=sys.stderr)",
    );
    let left = ProgramRequest {
        limits: fulgurite_runtime::limits::Limits {
            fuel: NonZeroU64::new(500_000_000).unwrap(),
            ..left.limits
        },
        ..left
    };
    let (left, right) = tokio::join!(python().run(left), python().run(right));
    assert_eq!(left.unwrap().stop, Some(CommandStop::Timeout));
    assert_eq!(stderr(&right.unwrap()), "'partial\\n'\n");
}

/// A program in text.
fn program(text: &str) -> Program {
    let engine = engine();
    let component = componentize(&wat::parse_str(text).unwrap()).unwrap();
    Program::new(&engine, &Component::new(&engine, component).unwrap()).unwrap()
}

#[tokio::test]
async fn waiting_for_the_other_is_not_charged_on_the_wall_clock() {
    let waits = program(
        r#"(module
            (import "wasi_snapshot_preview1" "fd_read"
                (func $read (param i32 i32 i32 i32) (result i32)))
            (memory (export "memory") 1)
            (func (export "_start")
                (i32.store (i32.const 0) (i32.const 64))
                (i32.store (i32.const 4) (i32.const 8))
                (drop (call $read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 16)))))"#,
    );
    let computes = program(
        r#"(module (memory (export "memory") 1)
            (func (export "_start") (loop $again (br $again))))"#,
    );
    let (mut left, mut right) = requests("", "");
    left.limits.wall_ms = NonZeroU64::new(200).unwrap();
    right.limits.fuel = NonZeroU64::new(2_000_000_000).unwrap();
    let began = Instant::now();
    let (left, right) = tokio::join!(waits.run(left), computes.run(right));
    assert_eq!(right.unwrap().stop, Some(CommandStop::Timeout));
    let left = left.unwrap();
    assert_eq!((left.status, left.stop), (0, None), "after {:?}", began.elapsed());
    assert!(began.elapsed() > Duration::from_millis(200), "the test is too fast to prove it");
}

#[tokio::test]
async fn writing_to_one_that_has_ended_fails() {
    let code = "import sys\n\
        sys.stdin.read()\n\
        try: print('x', flush=True)\n\
        except OSError as e: print('refused', file=sys.stderr)\n\
        sys.stdout = None";
    let (_, right) = run("pass", code).await;
    assert!(stderr(&right).starts_with("refused\n"), "{}", stderr(&right));
}

#[tokio::test]
async fn two_that_wait_for_each_other_are_not_left_hanging() {
    let code = "import sys\n\
        try: input()\n\
        except EOFError: print('end', file=sys.stderr)";
    let both = tokio::time::timeout(Duration::from_secs(60), run(code, code)).await;
    let (left, right) = both.expect("they hang");
    assert_eq!((stderr(&left).as_str(), stderr(&right).as_str()), ("end\n", "end\n"));
    assert!(left.starved && right.starved);
}

#[tokio::test]
async fn two_that_only_write_are_not_left_hanging() {
    let code = "import sys\n\
        try:\n  \
          for _ in range(1000): sys.stdout.write('x' * 4000)\n\
        except OSError: print('full', file=sys.stderr)\n\
        sys.stdout = None";
    let both = tokio::time::timeout(Duration::from_secs(60), run(code, code)).await;
    let (left, right) = both.expect("they hang");
    assert!(left.starved && right.starved);
    assert!(stderr(&left).starts_with("full\n"), "{}", stderr(&left));
    assert!(stderr(&right).starts_with("full\n"), "{}", stderr(&right));
}

#[tokio::test]
async fn much_passes_through_a_small_buffer() {
    let write = "import sys\nfor i in range(100000): print(i)\nprint('done')";
    let read = "import sys\n\
        total = 0\n\
        for line in sys.stdin:\n  \
          if line == 'done\\n': break\n  \
          total += int(line)\n\
        print(total, file=sys.stderr)";
    let (left, right) = run(write, read).await;
    assert_eq!(left.status, 0, "{}", stderr(&left));
    assert_eq!(stderr(&right), "4999950000\n");
}

/// Waits for input with `poll`, for at most five seconds, three times.
const POLL: &str = "import sys, time, select\n\
    start = time.monotonic()\n\
    for _ in range(3):\n  \
      ready = select.select([0], [], [], 5)[0]\n  \
      print(bool(ready), round(time.monotonic() - start), file=sys.stderr)\n  \
      if ready: print(sys.stdin.readline().strip(), file=sys.stderr)";

#[tokio::test]
async fn bytes_come_before_a_timer_and_a_timer_before_giving_up() {
    // The other computes for a long real time, answers once, and then waits in vain.
    let other = "import sys\n\
        for i in range(1000000): pass\n\
        print('late', flush=True)\n\
        sys.stdin.readline()";
    let (poll, other) = run(POLL, other).await;
    assert_eq!(stderr(&poll), "True 0\nlate\nFalse 5\nFalse 10\n");
    assert_eq!(other.status, 0);
    assert!(!poll.starved);
}

#[tokio::test]
async fn two_that_poll_both_see_their_timers() {
    let (left, right) = run(POLL, POLL).await;
    let expected = "False 5\nFalse 10\nFalse 15\n";
    assert_eq!(stderr(&left), expected);
    // The left one has ended by the time the right one's last timer would fire, or after it; its
    // end makes the input readable (at its end), so only the first answers are certain.
    assert!(stderr(&right).starts_with("False 5\n"), "{}", stderr(&right));
}
