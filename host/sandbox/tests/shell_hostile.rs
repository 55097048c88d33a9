//! Lines that want to take the host down: each ends, bounded, and says why.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    clippy::unwrap_used,
    reason = "helpers of tests fail the test"
)]

mod shell_support;

use std::time::{Duration, Instant};

use fulgurite_sandbox::CommandLimits;
use fulgurite_trace::{CommandOutput, CommandRequest, CommandStop};
use proptest::prelude::*;
use shell_support::{Entries, Entry, fuel, request_with, run, tree};

fn small() -> CommandLimits {
    CommandLimits {
        fuel: 300_000_000,
        buffer_bytes: 1 << 20,
        variable_bytes: 256 << 10,
        output_bytes: 4096,
        ..CommandLimits::default()
    }
}

fn hostile(line: &str) -> CommandOutput {
    let started = Instant::now();
    let files = Entries::from([
        ("a.txt".to_owned(), Entry::File(b"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!\n".to_vec())),
        ("long".to_owned(), Entry::File(vec![b'a'; 500_000])),
    ]);
    let output = run(line, &tree(&files), &small());
    let took = started.elapsed();
    assert!(took < Duration::from_secs(20), "{line} took {took:?}");
    assert!(output.stdout.bytes.len() <= 4096 + 64, "{line}");
    output
}

#[test]
fn endless_loops_end_with_a_timeout() {
    for line in [
        "while true; do :; done",
        "until false; do echo x; done",
        "for ((;;)); do :; done",
        "while :; do echo y; done | head -1",
        "x=a; while true; do x=$((x1 + 1)); done",
        "f() { while true; do :; done; }; f",
        "echo a | sed ':a;ba'",
        "echo a | sed ':a;s/a/a/;ta'",
        "seq 1 9000000000000000000",
        "sleep 100000",
        "while true; do ls / > /dev/null; done",
        "while true; do $(true); done",
        "seq 1 16000 | xargs -n1 true",
    ] {
        let output = hostile(line);
        assert_eq!(output.stopped, Some(CommandStop::Timeout), "{line}: {output:?}");
        assert_eq!(output.status, 124, "{line}");
        assert!(fuel(&output) <= small().fuel);
    }
}

#[test]
fn memory_is_bounded() {
    for line in [
        "x=a; while true; do x=$x$x; done",
        "x=$(cat long long long long)",
        "cat long long long long | cat",
        "set -- a; while true; do set -- \"$@\" \"$@\"; done",
        "f() { f; }; f",
        "f() { echo $(f); }; f",
        "g() { eval g; }; g",
        "echo 'bash r.sh' > r.sh; bash r.sh",
        "x=aaaaaaaaaaaaaaaa; x=${x//a/$x$x$x$x$x$x$x$x}; x=${x//a/$x$x$x$x}; x=${x//a/$x}; x=${x//a/$x}",
        "echo a | sed ':a;s/a/aa/g;ta'",
        "printf '%s\\n' {1..4000} | sed -n 'H;G;h;$p' | sed 's/$/x/;H;H;G;G;h' | wc",
        "cat long long long long | sort",
        "cut -d a -f 1- --output-delimiter=$(head -c 100000 long) long",
        "sed \"s/a*/$(head -c 60000 long | tr a '&')/\" long",
        "echo a | sed \":a;a $(head -c 60000 long)\nba\"",
        "i=0; while true; do eval \"f$i() { echo $(head -c 9000 long); }\"; i=$((i+1)); done",
        "echo $(head -c 100000 long) | xargs -I a echo $(head -c 100000 long)",
        "tr a '\\n' < long | cat - long | tr a '\\n' | sort | tac",
        "case x in $(head -c 100000 long | sed 's/a/[a]/g')) ;; esac; while true; do x=$x$x[a]; done",
        "i=0; while true; do i=$((i+1)); export v$i=xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx; eval \"w$i=1234567890\"; done",
    ] {
        let output = hostile(line);
        assert!(
            matches!(output.stopped, Some(CommandStop::Memory | CommandStop::Timeout)),
            "{line}: {output:?}"
        );
        assert!(matches!(output.status, 137 | 124), "{line}");
    }
}

#[test]
fn hostile_syntax_is_refused() {
    for line in [
        ":(){ :|:& };:".to_owned(),
        "echo {1..1000000000}".to_owned(),
        "echo {a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}".to_owned(),
        format!("echo {}", "$(".repeat(5_000)),
        format!("echo {}x{}", "$(echo ".repeat(200), ")".repeat(200)),
        format!("echo \"{}x{}\"", "$(echo \"".repeat(100), "\")".repeat(100)),
        format!("echo {}x{}", "${y:-".repeat(300), "}".repeat(300)),
        format!("{}true{}", "( ".repeat(300), " )".repeat(300)),
        format!("{}true{}", "if true; then ".repeat(300), "; fi".repeat(300)),
        format!("{}true{}", "{ ".repeat(300), "; }".repeat(300)),
        format!("{}x", "case x in x) ".repeat(300)),
        "{".repeat(300_000),
        "(".repeat(300_000),
        "`".repeat(300_001),
        "<<A ".repeat(2_000),
        "$".repeat(300_000) + "(",
        "a=(".repeat(10_000),
        "\"".repeat(300_001),
        "echo ".to_owned() + &"a".repeat(2 << 20),
    ] {
        let output = hostile(&line);
        let shown: String = line.chars().take(40).collect();
        assert_ne!(output.status, 0, "{shown}");
        assert!(!output.stderr.bytes.is_empty(), "{shown}");
    }
}

#[test]
fn deep_arithmetic_and_tests_do_not_overflow() {
    for line in [
        format!("echo $(({}1{}))", "(".repeat(5_000), ")".repeat(5_000)),
        format!("echo $(({}1))", "- ".repeat(5_000)),
        format!("echo $(({}1))", "1+".repeat(5_000)),
        format!("echo $(({}1))", "1?1:".repeat(200)),
        "x=y; y=x; echo $((x))".to_owned(),
        format!("[ {} x ]", "! ".repeat(20_000)),
        format!("[ {} x {} ]", "\\( ".repeat(5_000), "\\) ".repeat(5_000)),
        format!("[[ {} x ]]", "! ".repeat(5_000)),
        format!("find . {} -name x", "! ".repeat(5_000)),
        format!("find . {} -name x", "\\( ".repeat(5_000)),
        "echo $((9223372036854775807 + 1)) $((-9223372036854775808 / -1)) $((1 << 999))".to_owned(),
        "printf '%999999999999d' 1 | wc -c".to_owned(),
        "printf '%.999999999f' 1 | wc -c".to_owned(),
        "seq 99999999999999999999999999999".to_owned(),
        "head -c 99999999999999999999 a.txt; tail -n 18446744073709551615 a.txt".to_owned(),
        "cut -c 18446744073709551615- a.txt; cut -c 1-18446744073709551615 a.txt".to_owned(),
        "sed -n '99999999999999999999p;1~99999999999999999999p;1,+18446744073709551615p' a.txt"
            .to_owned(),
        "date; sleep 0.001; date +%s; date '+%'".to_owned(),
        format!("find . {} -true", "-true -o ".repeat(20_000)),
        format!("find . {} -true", "-true ".repeat(20_000)),
        format!("test {} x", "x -a ".repeat(20_000)),
        format!("[[ {} -n x ]]", "-n x && ".repeat(5_000)),
        format!("x={}; y=x{}; echo $((y{}))", "1+".repeat(200), "+x".repeat(100), "+y".repeat(100)),
    ] {
        hostile(&line);
    }
}

#[test]
fn catastrophic_expressions_are_linear() {
    for line in [
        "grep -E '(a*)*b' a.txt long",
        "grep -E '(a+)+$x' long",
        "grep -E '(a|a)*b' long; grep -E '(a|aa)+!b' long",
        "grep '\\(a*\\)*b' long",
        "grep -E '((a{1,40}){1,40}){1,40}b' long",
        "grep -E 'a{99999}' long; grep -E '(((((a{99}){99}){99}){99}){99})' long",
        "sed -E 's/(a*)*b/x/' long | wc -c",
        "sed -E 's/(x+x+)+y/z/' long | wc -c",
        "[[ $(head -c 20000 long) =~ (a+)+b ]]; echo $?",
        "x=$(head -c 20000 long); echo ${x//a*a*a*b/} | wc -c",
        "case $(head -c 20000 long) in *a*a*a*a*a*b) echo no;; esac",
        "grep -P '(a+)+b' long",
    ] {
        let output = hostile(line);
        assert!(output.stopped.is_none_or(|stop| stop == CommandStop::Timeout), "{line}");
    }
}

#[test]
fn gigantic_globs_and_trees_are_bounded() {
    let output = hostile(
        "mkdir g; cd g; for i in {1..40}; do mkdir -p d$i; done; echo */*/*/*/* | wc -c; echo ****************a",
    );
    assert!(output.stopped.is_none(), "{output:?}");
    let deep = "d=; for i in {1..600}; do d=$d/x; done; mkdir -p .$d; find . | wc -l; rm -rf x; ls -R | wc -l; cp -r x y; grep -r a .";
    hostile(deep);
}

#[test]
fn nothing_outside_the_tree_is_reached() {
    for line in [
        "cat /etc/passwd",
        "cat ../../../../etc/passwd",
        "ls /proc",
        "ln -s /etc/passwd p; cat p",
        "ln -s ../../../etc l; cat l/passwd",
        "cd /usr; ls",
        "/bin/cat /etc/hostname",
        "cat < /etc/passwd",
        "grep -r root /etc",
        "find /etc -name passwd -exec cat {} \\;",
        ". /etc/profile",
        "bash /etc/profile",
        "patch -p0 <<< $'--- /etc/passwd\\n+++ /etc/passwd\\n@@ -1 +1 @@\\n-a\\n+b'",
    ] {
        let output = hostile(line);
        let stdout = String::from_utf8_lossy(&output.stdout.bytes).into_owned();
        assert!(!stdout.contains("root:"), "{line}: {stdout}");
        assert!(!output.stderr.bytes.is_empty(), "{line}: {output:?}");
    }
    let output = hostile("env; set; echo $USER $HOSTNAME $SECRET");
    let stdout = String::from_utf8_lossy(&output.stdout.bytes).into_owned();
    assert!(!stdout.contains("CARGO"), "{stdout}");
}

#[test]
fn long_output_is_cut_and_counted() {
    let output = hostile("seq 1 100000");
    assert_eq!(output.status, 0);
    assert_eq!(output.stdout.total, 588_895);
    let text = String::from_utf8(output.stdout.bytes).unwrap();
    assert!(text.starts_with("1\n2\n") && text.ends_with("99999\n100000\n"), "{text}");
    assert!(text.contains("bytes left out"));
}

#[test]
fn wishes_narrow_the_limits_and_never_widen_them() {
    let files = tree(&Entries::new());
    let mut request = CommandRequest::line("while true; do :; done");
    request.timeout_ms = Some(20);
    let output = request_with(&request, &files, &CommandLimits::default());
    assert_eq!(output.status, 124);
    assert_eq!(fuel(&output), 20_000_000);
    request.timeout_ms = Some(u32::MAX);
    let output = request_with(&request, &files, &small());
    assert_eq!(fuel(&output), small().fuel);
    let mut request = CommandRequest::line("seq 1000");
    request.output_bytes = Some(10);
    let output = request_with(&request, &files, &small());
    assert_eq!(output.stdout.bytes, b"1\n2\n3\n[... 3883 bytes left out ...]\n1000\n".to_vec());
}

#[test]
fn the_same_line_costs_the_same() {
    let line = "for i in {1..50}; do echo $i; done | sort -rn | grep 1 | sed 's/1/x/' | wc -l";
    let (one, two) = (hostile(line), hostile(line));
    assert_eq!(one, two);
}

fn bounded(line: &str) -> Result<(), TestCaseError> {
    let limits = CommandLimits { fuel: 30_000_000, ..small() };
    let output = run(line, &tree(&Entries::new()), &limits);
    prop_assert!(fuel(&output) <= limits.fuel);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_taken_or_refused(line in "\\PC{0,60}") {
        bounded(&line)?;
    }

    #[test]
    fn any_shell_like_text_is_taken_or_refused(
        line in "(if|then|fi|for|in|do|done|case|esac|while|echo|\\{|\\}|\\(|\\)|\\$\\(|\\$\\{|\\(\\(|\\)\\)|\\[\\[|\\]\\]|;;|;|&&|\\|\\||\\||<<|<|>|2>&1|'|\"|`|\\\\|\\*|~|!|a|x=1|[0-9]|\n| ){0,30}"
    ) {
        bounded(&line)?;
    }

    #[test]
    fn quoting_survives_a_round_trip(text in "[a-zA-Z0-9 '\"$`\\\\*?~#;|&<>(){}\\[\\]!\n\t-]{0,40}") {
        let quoted = format!("printf '%s' '{}'", text.replace('\'', "'\\''"));
        let output = run(&quoted, &tree(&Entries::new()), &CommandLimits::default());
        prop_assert_eq!(String::from_utf8(output.stdout.bytes).unwrap(), text.clone());
        let escaped: String = text.chars().map(|letter| match letter {
            '"' | '$' | '`' | '\\' => format!("\\{letter}"),
            other => other.to_string(),
        }).collect();
        let output = run(&format!("x=\"{escaped}\"; printf %s \"$x\""), &tree(&Entries::new()), &CommandLimits::default());
        prop_assert_eq!(String::from_utf8(output.stdout.bytes).unwrap(), text);
    }

    #[test]
    fn commands_take_any_arguments(
        command in "(grep|sed|sort|cut|tr|head|tail|find|xargs|printf|test|\\[|seq|uniq|wc|ls|cp|mv|rm|diff|patch|date|tee|nl|paste|basename|ln|mkdir|touch|env|timeout|cmp|comm)",
        arguments in proptest::collection::vec("[-+a-zA-Z0-9,./:%\\\\*\\[\\]{}()$^!=~ ]{0,10}", 0..5),
    ) {
        let mut argv = vec![command];
        argv.extend(arguments);
        let mut request = CommandRequest::argv(argv);
        request.stdin = b"one two\nthree 3\n".to_vec();
        let limits = CommandLimits { fuel: 30_000_000, ..small() };
        let output = request_with(&request, &tree(&Entries::new()), &limits);
        prop_assert!(fuel(&output) <= limits.fuel);
    }
}
