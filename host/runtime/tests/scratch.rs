mod support;
use fulgurite_runtime::{program::ProgramRequest, wasi::Preopen};
use support::{python::python, tree::MemoryTree};

#[tokio::test]
async fn scratch() {
    let program = python();
    let lib = MemoryTree::new();
    let mut request = ProgramRequest::new([
        "python",
        "-c",
        "import zipfile,sys;z=zipfile.ZipFile('/usr/local/lib/python312.zip');z.extractall('/opt/lib')",
    ]);
    request.preopens = vec![Preopen::new("/opt/lib", lib.clone())];
    request.limits.fuel = std::num::NonZeroU64::new(1 << 50).unwrap();
    let end = program.run(request).await.unwrap();
    eprintln!("{} {}", end.status, String::from_utf8_lossy(&end.stderr.bytes));
    for line in std::fs::read_to_string("/tmp/scratch.txt").unwrap().split("\n===\n") {
        for with in [false, true] {
            let tree = MemoryTree::new();
            let mut request = ProgramRequest::new(line.trim_end_matches('\n').split('\x01'));
            request.environment = vec![("PYTHONDONTWRITEBYTECODE".into(), "1".into())];
            if with {
                request.environment.push(("PYTHONPATH".into(), "/opt/lib".into()));
            }
            request.preopens = vec![
                Preopen::new("/", tree.clone()).folder(""),
                Preopen::new("/opt/lib", lib.clone()).read_only(),
            ];
            let start = std::time::Instant::now();
            let end = program.run(request).await.unwrap();
            eprintln!(
                "--- {with} {line}\n[{} {:?} {:?} fuel {} virtual {} took {:?} opened {} left {}]\n{}\n{}",
                end.status,
                end.stop,
                end.message,
                end.fuel_used,
                end.virtual_elapsed,
                start.elapsed(),
                tree.opened(),
                tree.open_handles(),
                String::from_utf8_lossy(&end.stdout.bytes),
                String::from_utf8_lossy(&end.stderr.bytes)
            );
        }
    }
}
