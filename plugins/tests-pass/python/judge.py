"""The side of the tests: runs them and writes the verdict.

No code of the work runs here. The verdict goes to a file of this side's own tree, and the exit
status says the same again: 0 passed, 1 failed, 3 a mistake in the task itself.
"""

import ast
import importlib.machinery
import importlib.util
import io
import os
import sys
import traceback

PASSED, FAILED, MISTAKE = 0, 1, 3


class Mistake(Exception):
    """The task's own tests are wrong."""


def tail(error):
    """An error in a few lines, for people."""
    lines = traceback.format_exception_only(type(error), error)
    return "".join(lines)[-1000:].strip()


def compiled(source, name):
    try:
        return compile(source, name, "exec")
    except (SyntaxError, ValueError) as error:
        raise Mistake(f"{name} does not compile: {error}") from None


def counted(channel, candidate):
    """The candidate. One that is a class of Python itself is called on this side, which holds the
    same class; such calls count like any other."""
    if isinstance(candidate, Remote) or not callable(candidate):
        return candidate

    def call(*args, **kwargs):
        channel.calls += 1
        return candidate(*args, **kwargs)

    return call


def judge_function(job, channel):
    """HumanEval's form: `check(candidate)` raises unless all is well."""
    name, prompt = job["entry_point"], job["prompt"]
    test = compiled(job["test"], "the test")
    if prompt and not prompt.endswith("\n"):
        prompt += "\n"
    try:
        helpers = compile(prompt, "the prompt", "exec")
    except SyntaxError:
        helpers = compiled(prompt + "    pass\n", "the prompt")
    verdict = {"passed": 0, "total": 1, "failures": []}
    try:
        candidate = counted(channel, channel.apply("candidate", []))
        space = {"__name__": "tests"}
        exec(helpers, space)
        space[name] = candidate
        exec(test, space)
        if not callable(space.get("check")):
            raise Mistake("the test defines no function `check`")
        space["check"](candidate)
        channel.check_assertions()
        if channel.calls == 0 and not channel.broken:
            raise Mistake("the test never calls the candidate")
        verdict["passed"] = 1
    except Mistake:
        raise
    except BaseException as error:
        verdict["failures"].append(["check", tail(error)])
    return verdict


class HiddenModules:
    """Finds modules of the hidden files (from memory), and after those of the standard library
    the modules of the work (on the other side). Nothing is imported from the tree."""

    def __init__(self, files, work, channel):
        self.sources = {}
        self.work = set(work)
        self.channel = channel
        for path, source in files.items():
            if not path.endswith(".py"):
                continue
            parts = path[:-3].split("/")
            package = parts[-1] == "__init__"
            parts = parts[:-1] if package else parts
            # A helper beside a test is found by its bare name, as when tests run in their folder.
            names = {".".join(parts), parts[-1]} if parts else set()
            for name in names:
                self.sources.setdefault(name, (path, source, package))
            for end in range(1, len(parts)):
                self.sources.setdefault(".".join(parts[:end]), (None, "", True))

    def find_spec(self, name, path=None, target=None):
        if name in self.sources:
            _, _, package = self.sources[name]
            spec = importlib.machinery.ModuleSpec(name, self, is_package=package)
            return spec
        root = name.partition(".")[0]
        if root in sys.stdlib_module_names and root not in self.work:
            return None
        try:
            found = self.channel.apply("import", [name])
        except ModuleNotFoundError as error:
            if f"'{name}'" in str(error):
                return None
            raise
        handle = handle_of(found)
        if handle is None:
            return None
        spec = importlib.machinery.ModuleSpec(name, self, is_package=True)
        spec.loader_state = handle
        return spec

    def create_module(self, spec):
        if spec.loader_state is None:
            return None
        module = RemoteModule(spec.name)
        module.__dict__["_fulgurite"] = (self.channel, spec.loader_state)
        return module

    def exec_module(self, module):
        if isinstance(module, RemoteModule):
            return
        path, source, _ = self.sources[module.__name__]
        if path:
            module.__file__ = os.path.join(os.getcwd(), path)
            exec(compiled(source, path), module.__dict__)


def expected_tests(path, source):
    """The tests that a file holds, by reading it: so that a file that does not even load has
    failing tests rather than none."""
    try:
        tree = ast.parse(source, path)
    except (SyntaxError, ValueError) as error:
        raise Mistake(f"{path} does not compile: {error}") from None
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}

    def is_case(node, seen=()):
        for base in node.bases:
            name = base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", "")
            if name.endswith("TestCase"):
                return True
            if name in classes and name not in seen and is_case(classes[name], (*seen, name)):
                return True
        return False

    def methods(node, seen=()):
        names = [item.name for item in node.body if is_test(item)]
        for base in node.bases:
            name = getattr(base, "id", "")
            if name in classes and name not in seen:
                names += methods(classes[name], (*seen, name))
        return names

    def is_test(node):
        functions = (ast.FunctionDef, ast.AsyncFunctionDef)
        return isinstance(node, functions) and node.name.startswith("test")

    tests = []
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and (is_case(node) or node.name.startswith("Test")):
            tests += [f"{path}::{node.name}::{name}" for name in methods(node)]
        elif is_test(node):
            tests.append(f"{path}::{node.name}")
    return list(dict.fromkeys(tests))


def judge_suite(job, channel):
    """Hidden unittest or plain-assert test files."""
    import unittest

    files = job["files"]
    paths = job["tests"]
    statuses = {}
    for path in paths:
        for name in expected_tests(path, files[path]):
            statuses[name] = "did not run"
    if job["expected"]:
        statuses = {name: "did not run" for name in job["expected"]}
    if not statuses:
        raise Mistake("the hidden files hold no test")
    sys.meta_path.insert(0, HiddenModules(files, job["work_modules"], channel))

    class Result(unittest.TestResult):
        def startTest(self, test):
            super().startTest(test)
            statuses[test.fulgurite_name] = "passed"

        def stopTest(self, test):
            super().stopTest(test)
            if channel.broken:
                statuses[test.fulgurite_name] = channel.broken
            try:
                channel.check_assertions()
            except AssertionError as error:
                self.bad(test, error)

        def bad(self, test, error):
            name = getattr(test, "fulgurite_name", None) or str(test)
            if statuses.get(name, "passed") in ("passed", "did not run"):
                statuses[name] = tail(error)

        def addError(self, test, error):
            self.bad(test, error[1])

        def addFailure(self, test, error):
            self.bad(test, error[1])

        def addSubTest(self, test, subtest, error):
            if error is not None:
                self.bad(test, error[1])

        def addSkip(self, test, reason):
            self.bad(test, unittest.SkipTest(f"skipped: {reason}"))

        def addUnexpectedSuccess(self, test):
            self.bad(test, AssertionError("an expected failure did not fail"))

    class Plain(unittest.FunctionTestCase):
        pass

    result = Result()
    for path in paths:
        try:
            module = importlib.import_module(path[:-3].replace("/", "."))
            channel.check_assertions()
        except Mistake:
            raise
        except BaseException as error:
            for name in statuses:
                if name.startswith(path + "::"):
                    statuses[name] = f"the file does not load: {tail(error)}"
            continue
        for name, value in list(vars(module).items()):
            mine = getattr(value, "__module__", None) == module.__name__
            if not mine or isinstance(value, (Remote, RemoteModule)):
                continue
            if isinstance(value, type) and issubclass(value, unittest.TestCase):
                suite = unittest.defaultTestLoader.loadTestsFromTestCase(value)
                for test in suite:
                    test.fulgurite_name = f"{path}::{name}::{test._testMethodName}"
                suite(result)
            elif isinstance(value, type) and name.startswith("Test"):
                for method in [each for each in dir(value) if each.startswith("test")]:
                    test = Plain(lambda value=value, method=method: getattr(value(), method)())
                    test.fulgurite_name = f"{path}::{name}::{method}"
                    test(result)
            elif callable(value) and name.startswith("test"):
                test = Plain(value)
                test.fulgurite_name = f"{path}::{name}"
                test(result)
    bad = [[name, status] for name, status in statuses.items() if status != "passed"]
    return {"passed": len(statuses) - len(bad), "total": len(statuses), "failures": bad[:50]}


def judge(job, channel):
    """The verdict. A broken channel passes nothing, whatever the tests caught; nor does an
    assertion of theirs that the work caught."""
    try:
        run = {"function": judge_function, "suite": judge_suite}[job["mode"]]
        verdict = run(job, channel)
    except Mistake as mistake:
        return {"mistake": str(mistake), "passed": 0, "total": 0, "failures": []}
    reason = channel.broken or channel.swallowed
    if reason:
        verdict["passed"] = min(verdict["passed"], verdict["total"] - 1)
        verdict["failures"].append(["the work", reason])
    verdict["calls"] = channel.calls
    return verdict


def main():
    reader, writer = sys.stdin.buffer, sys.stdout.buffer
    # What tests print must not mix with the calls.
    sys.stdin, sys.stdout = io.StringIO(), sys.stderr
    folder = os.path.dirname(__file__)
    with open(os.path.join(folder, "job.json"), encoding="utf-8") as file:
        job = json.load(file)
    channel = Channel(reader, writer, job["operators"], job["write_back"])
    verdict = judge(job, channel)
    if "mistake" in verdict:
        status = MISTAKE
    else:
        status = PASSED if verdict["passed"] == verdict["total"] > 0 else FAILED
    with open(os.path.join(folder, "verdict.json"), "w", encoding="utf-8") as file:
        json.dump(verdict, file)
    sys.stderr.flush()
    # Threads and exit handlers of tests have no say any more.
    os._exit(status)


if __name__ == "__main__":
    main()
