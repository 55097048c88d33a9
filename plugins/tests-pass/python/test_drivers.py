"""Tests of the drivers with the machine's own Python: `python3 test_drivers.py`.

Each case runs judge and worker as two processes joined by two pipes, as the grader does.
"""

import importlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).parent
SECONDS = 20


def source(*names):
    return "\n".join((HERE / name).read_text() for name in names)


JUDGE = source("values.py", "remote.py", "judge.py")
WORKER = source("values.py", "worker.py")


def lay(folder, files):
    """Files as the grader lays them down: what is at the path goes first, no link is followed."""
    for path, contents in files.items():
        target = pathlib.Path(folder, path)
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.is_dir() and not target.is_symlink():
            shutil.rmtree(target)
        target.unlink(missing_ok=True)
        if isinstance(contents, tuple):
            target.symlink_to(contents[0])
        elif isinstance(contents, bytes):
            target.write_bytes(contents)
        else:
            target.write_text(contents)


def unchecked(code):
    """Byte code that Python takes without a look at the source it was made from."""
    return bytes(importlib._bootstrap_external._code_to_hash_pyc(code, b"12345678", False))


def run(judge_job, worker_job, work=None, timeout=SECONDS):
    """The verdict, and the exit status of the judge."""
    judge_job = {
        "operators": False, "write_back": False, "expected": [],
        "work_modules": [], **judge_job,
    }
    with tempfile.TemporaryDirectory() as left, tempfile.TemporaryDirectory() as right:
        place = ".fulgurite-grading"
        lay(left, work or {})
        lay(left, judge_job.get("files", {}))
        lay(left, {f"{place}/judge.py": JUDGE, f"{place}/job.json": json.dumps(judge_job)})
        lay(right, work or {})
        lay(right, {f"{place}/worker.py": WORKER, f"{place}/job.json": json.dumps(worker_job)})
        to_worker, to_judge = os.pipe(), os.pipe()
        python = [sys.executable, "-I", "-B", "-X", f"pycache_prefix={place}/none"]
        judge = subprocess.Popen(
            [*python, f"{place}/judge.py"], cwd=left, stdin=to_judge[0], stdout=to_worker[1],
            stderr=subprocess.PIPE,
        )
        worker = subprocess.Popen(
            [*python, f"{place}/worker.py"], cwd=right, stdin=to_worker[0], stdout=to_judge[1],
            stderr=subprocess.DEVNULL,
        )
        for end in (*to_worker, *to_judge):
            os.close(end)
        try:
            worker.wait(timeout)
        except subprocess.TimeoutExpired:
            worker.kill()
            worker.wait()
        _, errors = judge.communicate(timeout=SECONDS)
        path = pathlib.Path(left, place, "verdict.json")
        verdict = json.loads(path.read_text()) if path.exists() else {"crash": errors.decode()}
        return verdict, judge.returncode


def function(answer, test, prompt="", name="f", timeout=3, **options):
    job = {"mode": "function", "prompt": prompt, "entry_point": name, "test": test, **options}
    return run(job, {"prompt": prompt, "source": answer, "entry_point": name}, None, timeout)


def suite(work, files, tests=None, timeout=SECONDS, **options):
    tests = tests or [path for path in files if "test" in path]
    job = {"mode": "suite", "files": files, "tests": tests, **options}
    return run(job, {"prompt": "", "source": "", "entry_point": ""}, work, timeout)


DOUBLE = "def check(candidate):\n    assert candidate(2) == 4\n    assert candidate(3) == 6\n"
PROMPT = 'def f(x):\n    """Twice x."""\n'


class Function(unittest.TestCase):
    def passes(self, answer, test=DOUBLE, prompt=PROMPT, **options):
        verdict, status = function(answer, test, prompt, **options)
        self.assertEqual((verdict.get("passed"), status), (1, 0), verdict)

    def fails(self, answer, test=DOUBLE, prompt=PROMPT, **options):
        verdict, status = function(answer, test, prompt, **options)
        self.assertEqual((verdict.get("passed"), status), (0, 1), verdict)

    def test_a_program_a_completion_and_a_bare_body_pass(self):
        self.passes("def f(x):\n    return 2 * x\n")
        self.passes("    return 2 * x\n")
        self.passes("y = 2 * x\nreturn y\n")
        self.passes("f = lambda x: x + x\n")

    def test_wrong_and_missing_answers_fail(self):
        for answer in ("", "  \n", "def f(x):\n    return x\n", "def g(x): return 2 * x", "def", "#"):
            self.fails(answer)

    def test_helpers_of_the_prompt_exist_on_both_sides(self):
        prompt = "import math\ndef half(x):\n    return x / 2\n\n" + PROMPT
        test = "def check(candidate):\n    assert half(candidate(4)) == math.sqrt(16)\n"
        self.passes("def f(x):\n    return half(4 * x)\n", test, prompt)

    def test_plain_values_cross_unchanged(self):
        values = (
            "[1, 2.5, float('inf'), -0.0, 'a\\ud800', b'x', True, None, (1,), {1, 2}, "
            "frozenset('a'), {1: [2], (1, 2): 'x'}, 1j, 10**5000, bytearray(b'y'), '\\n']"
        )
        test = f"def check(candidate):\n    v = {values}\n    r = candidate(v)\n"
        test += "    assert r == v and [type(x) for x in r] == [type(x) for x in v]\n"
        test += "    assert candidate(float('nan')) != candidate(float('nan'))\n"
        self.passes("def f(x):\n    return x\n", test)

    def test_subclasses_of_builtins_compare_by_their_plain_part(self):
        answer = "from collections import Counter, namedtuple\nP = namedtuple('P', 'a b')\n"
        answer += "def f(x):\n    return Counter('aab') if x else P(1, 2)\n"
        test = "def check(c):\n    assert c(1) == {'a': 2, 'b': 1}\n"
        test += "    assert c(0) == (1, 2) and c(0).b == 2\n"
        self.passes(answer, test)

    def test_exceptions_arrive_as_their_builtin_class(self):
        answer = "class Odd(ValueError): pass\ndef f(x):\n    raise Odd('no')\n"
        test = "def check(c):\n    try:\n        c(1)\n    except ValueError as e:\n"
        test += "        assert str(e) == 'no'\n    else:\n        assert False\n"
        self.passes(answer, test)

    def test_functions_of_the_test_can_be_passed(self):
        test = "def check(c):\n    assert c(lambda x: x + 1) == [2, 3]\n    assert c(str) == ['1', '2']\n"
        self.passes("def f(g):\n    return [g(1), g(2)]\n", test)

    def test_arguments_change_in_place_only_where_asked(self):
        test = "def check(c):\n    x = [3, 1]\n    c(x)\n    assert x == [1, 3]\n"
        answer = "def f(x):\n    x.sort()\n"
        self.fails(answer, test)
        self.passes(answer, test, write_back=True)

    def test_classes_of_python_itself_are_graded_like_any_answer(self):
        test = "def check(c):\n    assert c('7') == 7\n"
        self.passes("f = int\n", test)
        for answer in ("f = str\n", "f = object\n", "f = KeyError\n", "f = 7\n"):
            self.fails(answer, test)

    def test_a_failed_assertion_in_a_callback_cannot_be_swallowed(self):
        test = "def check(c):\n    def seen(x):\n        assert x == 5\n    c(seen)\n"
        self.passes("def f(g):\n    g(5)\n", test)
        swallow = "def f(g):\n    try:\n        g(0)\n    except BaseException:\n        pass\n"
        self.fails(swallow, test)
        self.fails(swallow + "    g(5)\n", test)
        lenient = test.replace("c(seen)", "try:\n        c(seen)\n    except KeyError: pass")
        self.fails(swallow + "    raise KeyError\n", lenient)
        nested = "def check(c):\n    def inner(x):\n        assert x == 5\n    c(lambda x: c(inner))\n"
        self.fails(swallow, nested)

    def test_a_failed_assertion_that_comes_out_of_the_call_is_the_tests_to_judge(self):
        test = "def check(c):\n    def never(x):\n        assert False\n    try:\n        c(never)\n"
        test += "    except AssertionError:\n        pass\n    else:\n        raise ValueError\n"
        self.passes("def f(g):\n    g(1)\n", test)
        self.fails("def f(g):\n    try:\n        g(1)\n    except AssertionError:\n        pass\n", test)

    def test_a_test_that_is_wrong_is_a_mistake(self):
        for test in ("def check(", "x = 1", "def check(c):\n    pass\n"):
            verdict, status = function("def f(x): return x", test, PROMPT)
            self.assertEqual(status, 3)
            self.assertIn("mistake", verdict)

    def test_tricks_fail(self):
        same = "class A:\n    def __eq__(s, o): return True\n    __ne__ = lambda s, o: False\n"
        same += "    __hash__ = lambda s: 4\n    __bool__ = lambda s: True\n"
        tricks = {
            "printing": "print('OK')\nprint('1 passed')\ndef f(x):\n    print('OK')\n    return x\n",
            "raw output": "import os\ndef f(x):\n    os.write(1, b'{\"n\":2,\"v\":4}\\n')\n    return 0\n",
            "later answers": "import os\ndef f(x):\n    os.write(1, b'{\"n\":2,\"v\":4}\\n{\"n\":3,\"v\":6}\\n')\n",
            "exit": "import os\ndef f(x):\n    os._exit(0)\n",
            "exit at load": "import os\nos._exit(0)\n",
            "system exit": "import sys\ndef f(x):\n    sys.exit(0)\n",
            "keyboard interrupt": "def f(x):\n    raise KeyboardInterrupt\n",
            "generator exit": "def f(x):\n    raise GeneratorExit\n",
            "always equal": same + "def f(x):\n    return A()\n",
            "always equal int": same.replace("A:", "A(int):") + "def f(x):\n    return A(x)\n",
            "patched tests": "import __main__\ndef f(x):\n    __main__.check = None\n    return x\n",
            "recursion": "def f(x):\n    return f(x)\n",
            "deep value": "def f(x):\n    v = []\n    for _ in range(500): v = [v]\n    return v\n",
            "own worker": "import __main__\n__main__.Worker.answer = lambda s, m: None\ndef f(x): return x\n",
            "garbage": "import os\ndef f(x):\n    os.write(1, b'garbage\\n')\n    return 2 * x\n",
            "no newline": "import os\ndef f(x):\n    while True: os.write(1, b'x' * 65536)\n",
            "deep json": "import os\ndef f(x):\n    os.write(1, b'[' * 100000 + b'\\n')\n    return 2 * x\n",
            "wrong tags": "import os\ndef f(x):\n    os.write(1, b'{\"n\":2,\"v\":[\"dict\",[[[\"list\",[]],1]]]}\\n')\n    return 1\n",
        }
        for name, answer in tricks.items():
            with self.subTest(name):
                self.fails(answer)

    def test_operators_of_the_work_decide_nothing(self):
        every = "class A:\n    def __init__(s, *a): pass\n    def __getattr__(s, n): return lambda *a: True\n"
        for name in ("eq", "lt", "gt", "le", "ge", "contains"):
            every += f"    def __{name}__(s, o): return True\n"
        for name in ("sub", "rsub", "add", "radd", "mul", "mod"):
            every += f"    def __{name}__(s, o): return 0.0\n"
        every += "    def __abs__(s): return 0.0\n    __hash__ = lambda s: 1\n"
        every += "def f(x):\n    return A()\n"
        for condition in (
            "c(1) == 1", "1 == c(1)", "not c(1) != 1", "c(1) > 5", "5 < c(1)", "abs(c(1) - 7) < 1e-6",
            "abs(7 - c(1)) < 1e-6", "3 in c(1)", "c(1) in [3]", "[c(1)] == [3]", "{1: c(1)} == {1: 3}",
            "c(1) in {1: 2}", "isinstance(c(1), list)", "c(1) is True",
        ):
            with self.subTest(condition):
                self.fails(every, f"def check(c):\n    assert {condition}\n")

    def test_ending_an_iteration_of_the_test_is_no_success(self):
        answer = "def f(x):\n    raise StopIteration\n"
        self.fails(answer, "def check(c):\n    assert all(map(c, [1, 2]))\n")
        self.fails(answer, "def check(c):\n    for got in map(c, [1]):\n        assert got == 5\n")
        mine = "class S(StopIteration): pass\ndef f(x):\n    raise S\n"
        self.fails(mine, "def check(c):\n    assert all(map(c, [1, 2]))\n")

    def test_tests_that_catch_everything_do_not_hide_the_end_of_the_work(self):
        test = "def check(c):\n    try:\n        c(1)\n    except BaseException:\n        pass\n"
        self.fails("import os\ndef f(x):\n    os._exit(0)\n", test)


CALC = "def add(a, b):\n    return a + b\nclass Stack:\n    def __init__(self):\n        self.items = []\n"
CALC += "    def push(self, x):\n        self.items.append(x)\n        return self\n"
CALC += "    def pop(self):\n        if not self.items:\n            raise Empty('empty')\n        return self.items.pop()\n"
CALC += "    def __len__(self):\n        return len(self.items)\n    def __iter__(self):\n        return iter(self.items)\n"
CALC += "class Empty(LookupError):\n    code = 7\nLIMIT = 3\n"
HIDDEN = {
    "tests/test_calc.py": "import unittest\nfrom calc import add, Stack, Empty\nimport calc\n"
    "from helpers import four\n"
    "class T(unittest.TestCase):\n"
    "    def test_add(self):\n        self.assertEqual(add(2, 2), four())\n"
    "    def test_stack(self):\n        s = Stack()\n        s.push(1).push(2)\n"
    "        self.assertEqual(len(s), 2)\n        self.assertIn(2, s)\n"
    "        self.assertEqual(list(s), [1, 2])\n        self.assertEqual(s.pop(), 2)\n"
    "        self.assertIsInstance(s, Stack)\n"
    "    def test_errors(self):\n        with self.assertRaises(Empty) as caught:\n            Stack().pop()\n"
    "        self.assertEqual((str(caught.exception), caught.exception.code), ('empty', 7))\n"
    "    def test_module(self):\n        self.assertEqual(calc.LIMIT, 3)\n"
    "def test_plain():\n    assert add('a', 'b') == 'ab'\n",
    "tests/helpers.py": "def four():\n    return 4\n",
}
TESTS = ["tests/test_calc.py"]


class Suite(unittest.TestCase):
    def passes(self, work, files=HIDDEN, tests=None, **options):
        verdict, status = suite(work, files, tests or TESTS, **options)
        self.assertEqual(status, 0, verdict)
        self.assertEqual(verdict["passed"], verdict["total"])
        return verdict

    def fails(self, work, files=HIDDEN, tests=None, **options):
        verdict, status = suite(work, files, tests or TESTS, **options)
        self.assertEqual(status, 1, verdict)
        self.assertLess(verdict["passed"], verdict["total"])
        return verdict

    def test_good_work_passes(self):
        self.assertEqual(self.passes({"calc.py": CALC})["total"], 5)

    def test_packages_of_the_work_are_found(self):
        files = {"test_p.py": "from pack.inner import f\nimport pack.inner as p\ndef test_f():\n    assert f() == p.f() == 1\n"}
        work = {"pack/__init__.py": "", "pack/inner.py": "def f():\n    return 1\n"}
        self.passes(work, files, ["test_p.py"])

    def test_parts_that_fail_are_counted(self):
        verdict = self.fails({"calc.py": CALC.replace("a + b", "a - b")})
        self.assertEqual((verdict["passed"], verdict["total"]), (3, 5))

    def test_missing_or_broken_work_fails_every_test(self):
        for work in ({}, {"calc.py": "def"}, {"calc.py": "import nothing"}, {"calc.py": "exit()"}):
            self.assertEqual(self.fails(work)["passed"], 0)

    def test_tests_that_did_not_run_are_failures(self):
        files = {"test_a.py": "import unittest\nclass T(unittest.TestCase):\n"
                 "    @unittest.skip('no')\n    def test_a(self): pass\n    def test_b(self): pass\n"}
        self.assertEqual(self.fails({}, files, ["test_a.py"])["passed"], 1)
        files = {"test_a.py": "import unittest\nclass T(unittest.TestCase):\n    @classmethod\n"
                 "    def setUpClass(cls):\n        raise ValueError\n    def test_a(self): pass\n"}
        self.assertEqual(self.fails({}, files, ["test_a.py"])["passed"], 0)
        files = {"test_a.py": "def test_a(): pass\n"}
        options = {"expected": ["test_a.py::test_a", "test_a.py::test_b"]}
        self.assertEqual(self.fails({}, files, ["test_a.py"], **options)["total"], 2)

    def test_hidden_files_that_do_not_compile_or_hold_no_test_are_mistakes(self):
        for text in ("def test_a(:\n", "x = 1\n"):
            verdict, status = suite({}, {"test_a.py": text})
            self.assertEqual(status, 3, verdict)

    def test_tricks_fail(self):
        same = "class A:\n    def __eq__(s, o): return True\n    __hash__ = lambda s: 1\n"
        bad = CALC.replace("return a + b", "return A()")
        ok = "print('OK')\nprint('Ran 5 tests')\n"
        unittest_patch = (
            "import unittest\nunittest.TestCase.assertEqual = lambda *a: None\n"
            "unittest.TestCase.run = lambda *a: None\n"
        )
        rewrite = (
            "import glob, sys\nfor p in glob.glob('**/test*.py', recursive=True):\n"
            "    open(p, 'w').write('def test_x(): pass')\n"
            "for n in list(sys.modules):\n    if 'test' in n: del sys.modules[n]\n"
        )
        tricks = {
            "printing OK": {"calc.py": ok + CALC.replace("a + b", "0")},
            "os._exit(0)": {"calc.py": "import os\nos._exit(0)\n"},
            "os._exit(0) in a call": {"calc.py": CALC.replace("return a + b", "import os; os._exit(0)")},
            "always-true __eq__": {"calc.py": same + bad},
            "workspace unittest.py": {
                "calc.py": CALC.replace("a + b", "0"),
                "unittest.py": "class TestCase: pass\ndef main(): print('OK')\n",
                "helpers.py": "def four(): return 0\n",
            },
            "directory shadowing the hidden test": {
                "calc.py": CALC.replace("a + b", "0"),
                "tests/__init__.py": "", "test_calc/__init__.py": "def test_x(): pass\n",
                "tests/test_calc.py/__init__.py": "def test_x(): pass\n",
                "tests/test_calc/__init__.py": "def test_x(): pass\n",
                "tests/helpers/__init__.py": "def four(): return 0\n",
            },
            "sitecustomize": {
                "calc.py": CALC.replace("a + b", "0"),
                "sitecustomize.py": unittest_patch, "usercustomize.py": unittest_patch,
            },
            "patching unittest": {"calc.py": unittest_patch + CALC.replace("a + b", "0")},
            "rewriting the test": {"calc.py": rewrite + CALC.replace("a + b", "0")},
            "catching the assertion": {
                "calc.py": "import sys\nsys.excepthook = lambda *a: None\n"
                "sys.settrace(lambda *a: None)\nAssertionError = ValueError\n"
                + CALC.replace("a + b", "0")
            },
            "a symlink where the hidden file goes": {
                "calc.py": CALC.replace("a + b", "0"),
                "tests/test_calc.py": ("/dev/null",), "tests/helpers.py": ("../calc.py",),
            },
            "a verdict in the tree": {
                "calc.py": CALC.replace("a + b", "0"),
                ".fulgurite-grading/verdict.json": '{"passed": 5, "total": 5}',
            },
            "skipping": {"calc.py": "import unittest\nraise unittest.SkipTest('no')\n"},
            "skipping in a call": {
                "calc.py": CALC.replace("return a + b", "import unittest; raise unittest.SkipTest")
            },
            "system exit": {"calc.py": "raise SystemExit(0)\n"},
        }
        for name, work in tricks.items():
            with self.subTest(name):
                self.fails(work)

    def test_planted_byte_code_is_not_run(self):
        """Each plant makes the work pass wherever it is taken for the file that lies beside it."""
        honest = compile(CALC, "calc.py", "exec")
        passing = "import unittest\nclass T(unittest.TestCase):\n"
        for name in ("add", "stack", "errors", "module"):
            passing += f"    def test_{name}(self): pass\n"
        passing = compile(passing + "def test_plain(): pass\n", "test_calc.py", "exec")
        four = compile("def four(): return 0\n", "helpers.py", "exec")
        zero = CALC.replace("return a + b", "return 0 if a == 2 else a + b")
        plants = {
            "__pycache__/calc": (honest, CALC.replace("a + b", "0")),
            "tests/__pycache__/test_calc": (passing, CALC.replace("a + b", "0")),
            "tests/__pycache__/helpers": (four, zero),
            "__pycache__/helpers": (four, zero),
        }
        for place, (code, calc) in plants.items():
            with self.subTest(place):
                path = f"{place}.{sys.implementation.cache_tag}.pyc"
                # A hash that Python is told not to check.
                self.fails({"calc.py": calc, path: unchecked(code)})

    def test_planted_byte_code_would_be_run_if_it_could(self):
        """Otherwise the test above would prove nothing."""
        with tempfile.TemporaryDirectory() as folder:
            path = f"__pycache__/calc.{sys.implementation.cache_tag}.pyc"
            code = compile("X = 'planted'\n", "calc.py", "exec")
            lay(folder, {"calc.py": "X = 'written'\n", path: unchecked(code)})
            shown = subprocess.run(
                [sys.executable, "-B", "-c", "import calc; print(calc.X)"], cwd=folder,
                capture_output=True, text=True, env={}, check=True,
            )
            self.assertEqual(shown.stdout, "planted\n")

    def test_a_swallowed_assertion_fails_its_own_test_only(self):
        files = {"test_c.py": "import work\n"
                 "def seen(x):\n    assert x == 5\n"
                 "def test_one():\n    work.run(seen)\n"
                 "def test_two():\n    assert work.run(None) is None\n"}
        calm = "def run(f):\n    if f: f(5)\n"
        self.passes({"work.py": calm}, files, ["test_c.py"])
        cheat = "def run(f):\n    try:\n        f(0)\n    except Exception:\n        pass\n"
        verdict = self.fails({"work.py": cheat}, files, ["test_c.py"])
        self.assertEqual((verdict["passed"], verdict["total"]), (1, 2), verdict)
        files["test_c.py"] += "work.run(seen)\n"
        self.assertEqual(self.fails({"work.py": cheat}, files, ["test_c.py"])["passed"], 0)

    def test_an_endless_loop_ends_with_its_process(self):
        work = {"calc.py": CALC.replace("return a + b", "\n        while True: pass")}
        verdict = self.fails(work, timeout=2)
        self.assertGreater(verdict["passed"], -1)

    def test_modules_can_be_patched_and_called_back(self):
        files = {"test_m.py": "from unittest import mock\nimport work\n"
                 "def test_patch():\n"
                 "    with mock.patch.object(work, 'now', lambda: 5):\n"
                 "        assert work.later() == 6\n"
                 "    assert work.later() == 2\n"
                 "def test_decorator():\n"
                 "    @work.twice\n    def f(x):\n        return x + 1\n"
                 "    assert f(1) == 3\n"
                 "def test_callback_errors():\n"
                 "    def bad(x):\n        raise KeyError('k')\n"
                 "    try:\n        work.twice(bad)(1)\n    except KeyError:\n        pass\n"
                 "    else:\n        assert False\n"}
        work = {"work.py": "def now():\n    return 1\ndef later():\n    return now() + 1\n"
                "def twice(f):\n    return lambda x: f(f(x))\n"}
        self.passes(work, files, ["test_m.py"])

    def test_operators_are_the_works_own_where_asked(self):
        files = {"test_o.py": "from money import M\ndef test_m():\n    assert M(2) + 3 == 5\n    assert M(1) == M(1)\n"}
        work = {"money.py": "class M:\n    def __init__(s, n): s.n = n\n"
                "    def __add__(s, o): return M(s.n + getattr(o, 'n', o))\n"
                "    def __eq__(s, o): return s.n == getattr(o, 'n', o)\n"}
        self.fails(work, files, ["test_o.py"])
        self.passes(work, files, ["test_o.py"], operators=True)


if __name__ == "__main__":
    unittest.main()
