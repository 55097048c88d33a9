//! The file system of guests, with the real Python interpreter over a tree in memory.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests may fail loudly"
)]

mod support;

use fulgurite_runtime::wasi::Preopen;
use support::{
    python::{output, python, request, run_in},
    tree::MemoryTree,
};

#[tokio::test]
async fn files_are_written_read_and_removed() {
    let tree = MemoryTree::with(&[("in.txt", "one\ntwo\n"), ("old", "x")]);
    let code = "import os\n\
        text = open('/workspace/in.txt').read()\n\
        os.makedirs('/workspace/a/b')\n\
        with open('/workspace/a/b/out.txt', 'w') as f: f.write(text.upper())\n\
        with open('/workspace/a/b/out.txt', 'a') as f: f.write('three\\n')\n\
        with open('/workspace/a/b/out.txt', 'r+') as f:\n  f.seek(4); f.write('2'); f.seek(0); print(f.read())\n\
        os.rename('/workspace/a/b/out.txt', '/workspace/out.txt')\n\
        os.remove('/workspace/old'); os.rmdir('/workspace/a/b')\n\
        os.truncate('/workspace/in.txt', 3)\n\
        print(sorted(os.listdir('/workspace')), os.path.getsize('/workspace/in.txt'))";
    let end = run_in(&tree, code).await;
    assert_eq!(output(&end), "ONE\n2WO\nthree\n\n['a', 'in.txt', 'out.txt'] 3\n");
    assert_eq!(tree.get("out.txt").unwrap(), b"ONE\n2WO\nthree\n");
    assert_eq!(tree.get("in.txt").unwrap(), b"one");
    assert_eq!(tree.get("old"), None);
}

#[tokio::test]
async fn relative_paths_lead_to_the_preopen_at_the_root() {
    let tree = MemoryTree::with(&[("pkg/__init__.py", ""), ("pkg/m.py", "X = 5\n"), ("f", "")]);
    let end = run_in(&tree, "import pkg.m, os; print(pkg.m.X, os.path.exists('f'))").await;
    assert_eq!(output(&end), "5 True\n");
}

#[tokio::test]
async fn large_files_pass_whole() {
    let tree = MemoryTree::new();
    let code = "data = bytes(range(256)) * 20000\n\
        open('big', 'wb').write(data)\n\
        print(open('big', 'rb').read() == data)";
    assert_eq!(output(&run_in(&tree, code).await), "True\n");
    assert_eq!(tree.get("big").unwrap().len(), 5_120_000);
}

#[tokio::test]
async fn errors_have_their_own_numbers() {
    let tree = MemoryTree::with(&[("f", "x"), ("d/g", "y")]);
    let code = "import os, errno\n\
        def number(f, *a):\n  \
          try: f(*a)\n  \
          except OSError as e: print(errno.errorcode[e.errno], end=' ')\n  \
          else: print('none', end=' ')\n\
        number(open, 'missing')\n\
        number(os.mkdir, 'd')\n\
        number(os.listdir, 'f')\n\
        number(open, 'd', 'w')\n\
        number(os.rmdir, 'd')\n\
        number(open, 'f/x')\n\
        number(os.open, 'f', os.O_WRONLY | os.O_CREAT | os.O_EXCL)\n\
        number(open, 'x' * 5000)\n\
        number(os.symlink, '/etc/passwd', 'l')";
    let end = run_in(&tree, code).await;
    assert_eq!(
        output(&end).trim(),
        "ENOENT EEXIST ENOTDIR EISDIR ENOTEMPTY ENOTDIR EEXIST ENAMETOOLONG EPERM"
    );
}

#[tokio::test]
async fn no_path_leads_out_of_the_tree() {
    let tree = MemoryTree::with(&[("d/f", "x")]);
    let code = "import os\n\
        os.symlink('../../etc/passwd', '/box/d/up')\n\
        for path in ['/box/../../etc/passwd', '/box/d/up', '/etc/passwd', '../f', 'd/f']:\n  \
          try: open(path).read(); print('read', path)\n  \
          except OSError: pass\n\
        print(open('/box/d/../d/f').read())";
    let mut request = request(code);
    request.preopens = vec![Preopen::new("/box", tree)];
    let end = python().run(request).await.unwrap();
    assert_eq!(output(&end), "x\n");
}

#[tokio::test]
async fn mounts_come_from_several_trees_and_folders() {
    let work = MemoryTree::with(&[("f", "work"), ("sub/f", "sub")]);
    let library = MemoryTree::with(&[("lib/tool.py", "NAME = 'tool'\n")]);
    let code = "import sys, os\n\
        sys.path.append('/opt/lib')\n\
        import tool\n\
        print(tool.NAME, open('f').read(), open('/workspace/f').read())\n\
        print(os.path.samefile('f', '/workspace/sub/f'), os.path.samefile('/opt', '/workspace'))\n\
        try: os.link('/opt/lib/tool.py', '/workspace/tool')\n\
        except OSError as e: print(e.errno)";
    let mut request = request(code);
    request.environment = vec![("PYTHONDONTWRITEBYTECODE".into(), "1".into())];
    request.preopens = vec![
        Preopen::new("/", work.clone()).folder("sub"),
        Preopen::new("/workspace", work.clone()),
        Preopen::new("/opt", library.clone()).read_only(),
    ];
    let end = python().run(request).await.unwrap();
    // 69 is EROFS in wasi-libc.
    assert_eq!(output(&end), "tool sub work\nTrue False\n69\n");
    assert_eq!((work.open_handles(), library.open_handles()), (0, 0));
}

#[tokio::test]
async fn read_only_mount_refuses_every_change() {
    let tree = MemoryTree::with(&[("f", "x"), ("d/g", "y"), ("empty/h", "z")]);
    tree.get("f").unwrap();
    let code = "import os\n\
        changes = [\n  \
          lambda: open('f', 'w'), lambda: open('f', 'a'), lambda: open('new', 'w'),\n  \
          lambda: open('f', 'r+'), lambda: os.open('f', os.O_RDONLY | os.O_TRUNC),\n  \
          lambda: os.mkdir('n'), lambda: os.rmdir('empty'), lambda: os.remove('f'),\n  \
          lambda: os.rename('f', 'g'), lambda: os.symlink('f', 'l'), lambda: os.link('f', 'l'),\n  \
          lambda: os.truncate('f', 0), lambda: os.utime('f', (1, 1)),\n\
        ]\n\
        for number, change in enumerate(changes):\n  \
          try: change(); print('changed', number)\n  \
          except OSError: pass\n\
        print(open('f').read(), open('d/g').read(), sorted(os.listdir('/')))\n\
        os.close(os.open('f', os.O_RDONLY | os.O_CREAT))";
    let mut request = request(code);
    request.preopens = vec![Preopen::new("/", tree.clone()).read_only()];
    let end = python().run(request).await.unwrap();
    assert_eq!(output(&end), "x y ['d', 'empty', 'f']\n");
    assert_eq!(tree.get("f").unwrap(), b"x");
}

#[tokio::test]
async fn handles_are_given_back_however_the_program_ends() {
    for code in [
        "f = open('f'); g = open('f')",
        "import os; f = open('f'); os._exit(1)",
        "import os; f = open('f'); os.abort()",
        "f = open('f')\nwhile True: pass",
    ] {
        let tree = MemoryTree::with(&[("f", "x")]);
        let mut request = request(code);
        request.preopens = vec![Preopen::new("/", tree.clone())];
        request.limits.fuel = std::num::NonZeroU64::new(500_000_000).unwrap();
        python().run(request).await.unwrap();
        assert_eq!(tree.open_handles(), 0, "{code}");
        assert!(tree.opened() > 1);
    }
}

#[tokio::test]
async fn too_many_open_files_are_an_error_of_the_program() {
    let tree = MemoryTree::with(&[("f", "x")]);
    let code = "held = []\n\
        try:\n  \
          while True: held.append(open('f'))\n\
        except OSError as e: n = len(held); held.clear(); print(n, e.errno)\n\
        print(open('f').read())";
    let mut request = request(code);
    request.preopens = vec![Preopen::new("/", tree)];
    // The adapter of WASI 0.1 has room for 128; half of the resources may be descriptors.
    request.limits.resources = std::num::NonZeroU32::new(100).unwrap();
    let end = python().run(request).await.unwrap();
    // 19 is EDQUOT in wasi-libc. The preopen counts too.
    assert_eq!(output(&end), "49 19\nx\n");
}

#[tokio::test]
async fn links_and_times_are_those_of_the_tree() {
    let tree = MemoryTree::with(&[("f", "x")]);
    let code = "import os\n\
        os.utime('f', ns=(1_000_000_001, 2_000_000_002)); s = os.stat('f')\n\
        print(s.st_atime_ns, s.st_mtime_ns, s.st_size, s.st_nlink)\n\
        os.utime('f'); print(os.stat('f').st_mtime_ns // 10**15)\n\
        os.link('f', 'g'); os.symlink('f', 'l')\n\
        print(os.stat('g').st_nlink, os.path.samefile('f', 'g'), os.readlink('l'))\n\
        print(os.path.islink('l'), os.path.islink('f'), open('l').read())\n\
        print([(e.name, e.is_file(follow_symlinks=False)) for e in os.scandir('/')])";
    let end = run_in(&tree, code).await;
    assert_eq!(
        output(&end),
        "1000000001 2000000002 1 1\n1735\n2 True f\nTrue False x\n\
         [('f', True), ('g', True), ('l', False)]\n"
    );
}

#[tokio::test]
async fn folder_of_tests_runs() {
    let tree = MemoryTree::with(&[
        ("code.py", "def double(x): return x * 2\n"),
        ("double.py", "def double(x): return x * 2\n"),
        (
            "tests/test_double.py",
            "import unittest\nfrom double import double\n\
             class Double(unittest.TestCase):\n  \
               def test_two(self): self.assertEqual(double(2), 4)\n  \
               def test_bad(self): self.assertEqual(double(2), 5)\n",
        ),
    ]);
    let mut request = fulgurite_runtime::program::ProgramRequest::new([
        "python", "-m", "unittest", "discover", "-s", "tests", "-t", ".",
    ]);
    tree.put("tests/__init__.py", b"");
    request.preopens = vec![Preopen::new("/", tree.clone())];
    let end = python().run(request).await.unwrap();
    let stderr = String::from_utf8(end.stderr.bytes).unwrap();
    assert_eq!(end.status, 1, "{stderr}");
    assert!(stderr.contains("Ran 2 tests") && stderr.contains("FAILED (failures=1)"), "{stderr}");
    // Compiled modules were written to the tree, as on any system.
    assert!(tree.get("__pycache__/double.cpython-312.pyc").is_some());
}
