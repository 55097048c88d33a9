"""The side of the work: runs what an episode wrote and answers calls from the tests.

Nothing here is trusted and nothing here decides anything. It serves honest work; dishonest work
can at most spoil its own answers.
"""

import builtins
import importlib
import io
import operator
import os
import sys

FUNCTIONS = {
    "getattr": getattr,
    "setattr": setattr,
    "delattr": delattr,
    "dir": dir,
    "call": lambda function, *args, **kwargs: function(*args, **kwargs),
    "import": importlib.import_module,
    "isinstance": lambda kind, value: isinstance(value, kind),
    "issubclass": lambda kind, other: issubclass(other, kind),
    "iter": iter,
    "next": lambda iterator: next_item(iterator),
    "len": len,
    "bool": bool,
    "str": str,
    "repr": repr,
    "int": int,
    "float": float,
    "index": operator.index,
    "abs": abs,
    "neg": operator.neg,
    "invert": operator.invert,
    "getitem": operator.getitem,
    "setitem": operator.setitem,
    "delitem": operator.delitem,
    "contains": operator.contains,
    "eq": operator.eq,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "truediv": operator.truediv,
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "pow": operator.pow,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "enter": lambda manager: manager.__enter__(),
    "exit": lambda manager: manager.__exit__(None, None, None),
}


def next_item(iterator):
    """The next item in a tuple; an empty tuple at the end."""
    try:
        return (next(iterator),)
    except StopIteration:
        return ()


PLAIN = (int, float, complex, str, bytes, bytearray, list, tuple, set, frozenset, dict)


class Refused(Exception):
    """The work cannot be loaded."""


class Worker:
    def __init__(self, reader, writer):
        self.reader = reader
        self.writer = writer
        self.objects = []
        self.known = {}
        self.callbacks = 0

    def serve(self):
        """Answers calls until the tests have no more."""
        while True:
            message = read_line(self.reader)
            if message is None:
                return
            self.answer(message)

    def answer(self, message):
        reply = {"n": message["n"]}
        try:
            function = FUNCTIONS[message["f"]]
            args = [self.decode(form) for form in message["a"]]
            kwargs = {name: self.decode(form) for name, form in message.get("k", {}).items()}
            reply["v"] = self.encode(function(*args, **kwargs))
            if message.get("w"):
                reply["w"] = [self.encode(arg) for arg in args]
        except BaseException as error:
            reply = {"n": message["n"], "e": self.failure(error)}
        try:
            write_line(self.writer, reply)
        except NotPlain as error:
            write_line(self.writer, {"n": message["n"], "e": self.failure(error)})

    def failure(self, error):
        try:
            text = str(error)[:2000]
        except BaseException:
            text = ""
        try:
            args = [encode(arg, self.refuse) for arg in error.args]
        except BaseException:
            args = [text]
        return {"x": self.lineage(type(error)), "t": text, "a": args, "h": self.handle(error)}

    def lineage(self, kind):
        """An exception class and its bases, the class first."""
        return [
            [parent.__module__, parent.__qualname__, self.handle(parent)]
            for parent in kind.__mro__
            if issubclass(parent, BaseException)
        ]

    def refuse(self, value):
        raise NotPlain(type(value).__name__)

    def handle(self, value):
        number = self.known.get(id(value))
        if number is None:
            number = len(self.objects)
            self.objects.append(value)
            self.known[id(value)] = number
        return number

    def encode(self, value):
        return encode(value, self.encode_object)

    def encode_object(self, value):
        if isinstance(value, Callback):
            return ["own", value.number]
        if isinstance(value, type):
            if issubclass(value, BaseException):
                return ["exception", self.lineage(value)]
            if value.__module__ == "builtins":
                return ["builtin", value.__name__, self.handle(value)]
        for base in PLAIN:
            if isinstance(value, base):
                try:
                    plain = encode(self.base_value(base, value), self.encode_object)
                    return ["based", type(value).__name__, plain, self.handle(value)]
                except NotPlain:
                    break
        return ["object", type(value).__name__, self.handle(value)]

    @staticmethod
    def base_value(base, value):
        if base is dict:
            return {key: dict.__getitem__(value, key) for key in dict.__iter__(value)}
        if base in (list, tuple, set, frozenset):
            return base(base.__iter__(value))
        if base is str:
            return str.__str__(value)
        if base is int:
            return int.__int__(value)
        if base is float:
            return float.__float__(value)
        return base(value)

    def decode(self, form):
        return decode(form, self.decode_object)

    def decode_object(self, form):
        tag = form[0]
        if tag == "object":
            return self.objects[form[1]]
        if tag == "builtin":
            return getattr(builtins, form[1])
        if tag == "own":
            return Callback(self, form[1])
        raise Malformed(f"unknown tag {tag!r}")

    def call_back(self, number, args, kwargs):
        """Calls a function of the tests; answers their calls meanwhile."""
        self.callbacks += 1
        sequence = self.callbacks
        write_line(
            self.writer,
            {
                "c": sequence,
                "f": number,
                "a": [self.encode(arg) for arg in args],
                "k": {name: self.encode(arg) for name, arg in kwargs.items()},
            },
        )
        while True:
            message = read_line(self.reader)
            if message is None:
                raise EOFError("the tests have ended")
            if "n" in message:
                self.answer(message)
            elif message.get("c") == sequence:
                if "e" in message:
                    name, text = message["e"]
                    kind = getattr(builtins, name, None)
                    if not (isinstance(kind, type) and issubclass(kind, Exception)):
                        kind = RuntimeError
                    raise kind(text)
                return self.decode(message["v"])


class Callback:
    """A function of the tests."""

    def __init__(self, worker, number):
        self.worker = worker
        self.number = number

    def __call__(self, *args, **kwargs):
        return self.worker.call_back(self.number, args, kwargs)


def load_candidate(job):
    """The function under test. An answer may be a whole program or go on where the prompt ends."""
    prompt, source, name = job["prompt"], job["source"], job["entry_point"]
    if not source.strip():
        raise Refused("there is no code")
    if prompt and not prompt.endswith("\n"):
        prompt += "\n"
    indented = "".join("    " + line for line in source.splitlines(True))
    code, problem = None, f"no function {name} is defined"
    for text, helpers in ((source, True), (prompt + source, False), (prompt + indented, False)):
        try:
            code = compile(text, "<candidate>", "exec")
        except (SyntaxError, ValueError) as error:
            if helpers:
                problem = f"{type(error).__name__}: {error}"
            continue
        if name in code.co_names:
            break
        code = None
    if code is None:
        raise Refused(problem)
    space = {"__name__": "candidate"}
    if helpers:
        for text in (prompt, prompt + "    pass\n"):
            try:
                exec(compile(text, "<prompt>", "exec"), space)
                break
            except SyntaxError:
                continue
        space.pop(name, None)
    exec(code, space)
    if not callable(space.get(name)):
        raise Refused(f"{name} is not a function")
    return space[name]


def main():
    reader, writer = sys.stdin.buffer, sys.stdout.buffer
    # What the work prints must not mix with the answers.
    sys.stdin, sys.stdout = io.StringIO(), sys.stderr
    with open(os.path.join(os.path.dirname(__file__), "job.json"), encoding="utf-8") as file:
        job = json.load(file)
    # Written so that no module lies directly in "/": Python cannot name a cache file there.
    sys.path.insert(0, os.path.join(os.getcwd(), "."))
    sys.argv = [""]
    loaded = []

    def candidate():
        if not loaded:
            loaded.append(load_candidate(job))
        return loaded[0]

    FUNCTIONS["candidate"] = candidate
    Worker(reader, writer).serve()


if __name__ == "__main__":
    main()
