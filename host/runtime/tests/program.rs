//! Commands of the wasm lane, with the real Python interpreter: how they end, what they print,
//! what time and chance look like to them.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests may fail loudly"
)]

mod support;

use std::num::NonZeroU64;

use fulgurite_runtime::{
    limits::{LimitSettings, Limits, Role},
    program::{Program, ProgramEnd, ProgramError, ProgramRequest},
    wasi::{ClockConfig, Output, Stdin, fuel},
};
use fulgurite_trace::CommandStop;
use support::{
    python::{engine, output, python, request, run, run_in},
    tree::MemoryTree,
};
use wasmtime::component::Component;

#[tokio::test]
async fn prints_and_ends_well() {
    let end = run("print(1+1)").await;
    assert_eq!(output(&end), "2\n");
    assert_eq!(end.stdout.total, 2);
    assert!(end.stderr.bytes.is_empty());
    assert!(!end.starved);
}

#[tokio::test]
async fn exit_status_is_kept() {
    for (code, status) in [
        ("import sys; sys.exit(7)", 7),
        ("import sys; sys.exit(255)", 255),
        ("import sys; sys.exit(0)", 0),
        ("import os; os._exit(3)", 3),
        ("raise ValueError('no')", 1),
    ] {
        let end = run(code).await;
        assert_eq!((end.status, end.stop), (status, None), "{code}");
    }
}

#[tokio::test]
async fn traceback_goes_to_standard_error() {
    let end = run("raise ValueError('why')").await;
    let stderr = String::from_utf8(end.stderr.bytes).unwrap();
    assert!(stderr.ends_with("ValueError: why\n"), "{stderr}");
}

#[tokio::test]
async fn endless_loop_uses_up_its_fuel() {
    let mut request = request("while True: pass");
    request.limits.fuel = NonZeroU64::new(400_000_000).unwrap();
    let end = python().run(request).await.unwrap();
    assert_eq!((end.status, end.stop), (124, Some(CommandStop::Timeout)));
    assert_eq!(end.fuel_used, 400_000_000);
}

#[tokio::test]
async fn wall_clock_is_an_error_and_not_an_ending() {
    let mut request = request("while True: pass");
    let settings =
        LimitSettings { fuel: Some(1 << 60), wall_ms: Some(100), ..LimitSettings::default() };
    request.limits = Limits::decode(Role::Program, &settings).unwrap();
    let error = python().run(request).await.unwrap_err();
    assert!(matches!(error, ProgramError::WallClock { wall_ms: 100, .. }), "{error}");
}

#[tokio::test]
async fn abort_is_a_trap() {
    let end = run("import os; os.abort()").await;
    assert_eq!((end.status, end.stop), (134, Some(CommandStop::Trap)));
    assert!(end.message.unwrap().contains("unreachable"));
}

#[tokio::test]
async fn refused_memory_that_is_taken_well_is_no_stop() {
    let end = run("x = []\ntry:\n  while True: x.append(bytes(1 << 24))\nexcept MemoryError:\n  n = len(x); x.clear(); print(n)").await;
    let blocks: u64 = output(&end).trim().parse().unwrap();
    // 512 MiB in blocks of 16 MiB, less what the interpreter itself takes.
    assert!((20..32).contains(&blocks), "{blocks}");
}

#[tokio::test]
async fn refused_memory_and_a_trap_are_out_of_memory() {
    let module = wat::parse_str(
        r#"(module (memory (export "memory") 1) (func (export "_start")
            (loop $more
                (br_if $more (i32.ne (memory.grow (i32.const 100)) (i32.const -1))))
            unreachable))"#,
    );
    let end = run_module(&module.unwrap()).await;
    assert_eq!((end.status, end.stop), (137, Some(CommandStop::Memory)));
}

async fn run_module(module: &[u8]) -> ProgramEnd {
    run_module_with(module, Limits::of(Role::Program)).await
}

async fn run_module_with(module: &[u8], limits: Limits) -> ProgramEnd {
    let engine = engine();
    let component = fulgurite_runtime::componentize::componentize(module).unwrap();
    let component = Component::new(&engine, component).unwrap();
    let program = Program::new(&engine, &component).unwrap();
    let request = ProgramRequest { limits, ..ProgramRequest::new(["module"]) };
    program.run(request).await.unwrap()
}

/// Asks the host as many times for 64 KiB of random bytes, with next to no instruction of its own.
fn asks_the_host(times: u32) -> Vec<u8> {
    let text = format!(
        r#"(module
            (import "wasi_snapshot_preview1" "random_get"
                (func $random (param i32 i32) (result i32)))
            (memory (export "memory") 2)
            (func (export "_start") (local $left i32)
                (local.set $left (i32.const {times}))
                (loop $more
                    (drop (call $random (i32.const 0) (i32.const 65536)))
                    (local.set $left (i32.sub (local.get $left) (i32.const 1)))
                    (br_if $more (local.get $left)))))"#
    );
    wat::parse_str(text).unwrap()
}

#[tokio::test]
async fn host_calls_cost_what_they_move_and_the_same_every_time() {
    let few = run_module(&asks_the_host(10)).await;
    let many = run_module(&asks_the_host(1010)).await;
    assert_eq!((few.status, many.status), (0, 0), "{:?}", many.message);
    let cost = many.fuel_used - few.fuel_used;
    let moved = 1000 * (fuel::CALL + 65_536 * fuel::BYTE);
    assert!(cost >= moved && cost < moved + moved / 10, "{cost} for {moved}");
    assert_eq!(many, run_module(&asks_the_host(1010)).await);
}

#[tokio::test]
async fn host_calls_alone_can_use_up_the_fuel() {
    let settings = LimitSettings { fuel: Some(20_000_000), ..LimitSettings::default() };
    let limits = Limits::decode(Role::Program, &settings).unwrap();
    let end = run_module_with(&asks_the_host(1_000_000), limits).await;
    assert_eq!((end.status, end.stop), (124, Some(CommandStop::Timeout)), "{:?}", end.message);
    assert_eq!(end.fuel_used, 20_000_000);
}

/// Reads the same MiB a hundred times: nothing but a wall clock would have seen it.
#[tokio::test]
async fn reading_a_file_again_and_again_costs_its_bytes() {
    let tree = MemoryTree::new();
    tree.put("big", &vec![0; 1 << 20]);
    let read = |times: u32| {
        format!(
            "f = open('big', 'rb', buffering=0)\nn = 0\nfor _ in range({times}):\n  \
             f.seek(0)\n  n += len(f.read(1 << 20))\nprint(n)"
        )
    };
    let (none, many) = (run_in(&tree, &read(0)).await, run_in(&tree, &read(100)).await);
    let bytes: u64 = output(&many).trim().parse().unwrap();
    assert!(bytes > 1 << 20, "{bytes} bytes were read");
    assert!(many.fuel_used - none.fuel_used >= bytes * fuel::BYTE, "{bytes}: {}", many.fuel_used);
}

#[tokio::test]
async fn nothing_of_the_host_is_seen() {
    let code = "import os, sys\n\
        print(dict(os.environ), sys.argv, os.getcwd())\n\
        for path in ['/', '/etc', '/proc', '/workspace', '..', '/home', '/tmp']:\n  \
          try: os.listdir(path); print('seen', path)\n  \
          except OSError: pass";
    assert_eq!(output(&run(code).await), "{} ['-c'] /\n");
}

#[tokio::test]
async fn arguments_environment_and_input_arrive() {
    let code = "import os, sys; print(sys.argv[1:], os.environ['NAME'], sys.stdin.read())";
    let mut request = ProgramRequest::new(["python", "-c", code, "a b", "ü"]);
    request.environment = vec![("NAME".into(), "value = x".into())];
    request.stdin = Stdin::Bytes("line\nlast".into());
    let end = python().run(request).await.unwrap();
    assert_eq!(output(&end), "['a b', 'ü'] value = x line\nlast\n");
}

#[tokio::test]
async fn large_input_arrives_whole() {
    let mut request = request("import sys; print(len(sys.stdin.buffer.read()))");
    request.stdin = Stdin::Bytes(vec![b'x'; 3_000_000]);
    let end = python().run(request).await.unwrap();
    assert_eq!(output(&end), "3000000\n");
}

#[tokio::test]
async fn long_output_is_cut_in_the_middle() {
    let mut request = request("import sys\nfor i in range(100000): print(i)");
    request.stdout = Output::Capture { head: 4, tail: 12 };
    let end = python().run(request).await.unwrap();
    assert_eq!(output(&end), "0\n1\n\n[... 588874 bytes left out ...]\n99998\n99999\n");
    assert_eq!(end.stdout.total, 588_890);
}

#[tokio::test]
async fn both_streams_in_one_keep_their_order() {
    let code = "import sys\nfor i in range(3):\n  print('out', i, flush=True)\n  \
                print('err', i, file=sys.stderr, flush=True)";
    let mut request = request(code);
    request.stderr_to_stdout = true;
    let end = python().run(request).await.unwrap();
    assert_eq!(output(&end), "out 0\nerr 0\nout 1\nerr 1\nout 2\nerr 2\n");
    assert_eq!(end.stderr.total, 0);
}

#[tokio::test]
async fn sleeping_takes_virtual_time_only() {
    let code = "import time\n\
        wall, start = time.time(), time.monotonic()\n\
        time.sleep(86400)\n\
        print(round(time.monotonic() - start, 3), round(time.time() - wall, 3), int(wall))";
    let started = std::time::Instant::now();
    let end = run(code).await;
    assert_eq!(output(&end), "86400.0 86400.0 1735689600\n");
    assert!(end.virtual_elapsed > 86_400_000_000_000);
    assert!(started.elapsed().as_secs() < 3600);
}

#[tokio::test]
async fn waiting_for_the_clock_ends() {
    let code = "import time\nend = time.monotonic() + 0.05\nwhile time.monotonic() < end: pass";
    output(&run(code).await);
}

#[tokio::test]
async fn virtual_limit_stops_a_sleeper() {
    let mut request = request("import time\nwhile True: time.sleep(1)");
    request.clock = ClockConfig { limit: Some(10_000_000_000), ..ClockConfig::default() };
    let end = python().run(request).await.unwrap();
    assert_eq!((end.status, end.stop), (124, Some(CommandStop::Timeout)));
    assert!(end.message.unwrap().contains("10000 ms"));
}

#[tokio::test]
async fn same_request_gives_the_same_run() {
    let code = "import os, random, time, uuid\n\
        print(os.urandom(8).hex(), random.random(), uuid.uuid4(), hash('x'), time.time_ns())\n\
        print({'a', 'b', 'c', 'd'})";
    let once = run(code).await;
    let twice = run(code).await;
    assert_eq!(once, twice);
    let mut request = request(code);
    request.seed = 1;
    let other = python().run(request).await.unwrap();
    let (first, second) = (output(&once), output(&other));
    for (one, two) in first.split(' ').zip(second.split(' ')).take(3) {
        assert_ne!(one, two);
    }
}

#[tokio::test]
async fn sockets_do_not_exist() {
    let end = run("import socket; socket.socket()").await;
    assert_eq!(end.status, 1);
}

#[tokio::test]
async fn component_that_is_no_command_is_unfit() {
    let engine = engine();
    let component = Component::new(&engine, wat::parse_str("(component)").unwrap()).unwrap();
    let error = Program::new(&engine, &component).unwrap_err();
    assert!(matches!(error, ProgramError::Unfit { .. }));
    assert!(error.to_string().contains("wasi:cli/run"), "{error}");
}

#[tokio::test]
async fn component_that_wants_more_is_unfit() {
    let engine = engine();
    let text = r#"(component (import "wasi:http/outgoing-handler@0.2.0" (instance)) (import "own:x/y" (func)))"#;
    let component = Component::new(&engine, wat::parse_str(text).unwrap()).unwrap();
    let error = Program::new(&engine, &component).unwrap_err();
    assert!(error.to_string().contains("own:x/y"), "{error}");
}
