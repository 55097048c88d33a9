"""The tests' view of the work: stand-ins for what lives on the other side.

This part of the judge keeps one rule: the work never decides a comparison with plain data. A
stand-in equals no plain value, has no order and no arithmetic with one, and holds one only if
iterating over it shows so. (`operators` in the grading data lifts this, for classes whose
operators are what is tested.)
"""

import builtins
import os
import types

FORBIDDEN = (StopIteration, StopAsyncIteration)
CALLBACKS = 100_000
TYPES = {
    kind.__name__: kind
    for kind in (
        bool, bytearray, bytes, complex, dict, float, frozenset, int, list, object, set, str, tuple
    )
}


class Gone(BaseException):
    """The work ended, or broke the rules of the channel. Not to be caught by `except Exception`."""


class WorkError(Exception):
    """An exception of the work that has no counterpart here."""


class Channel:
    def __init__(self, reader, writer, operators=False, write_back=False):
        self.reader = reader
        self.writer = writer
        self.operators = operators
        self.write_back = write_back
        self.calls = 0
        self.served = 0
        self.broken = None
        self.swallowed = None
        self.own = []
        self.classes = {}

    def fail(self, reason):
        """Once broken, the channel stays broken: no test can pass by catching this."""
        self.broken = self.broken or reason
        raise Gone(self.broken)

    def apply(self, function, args, kwargs=None):
        if self.broken:
            raise Gone(self.broken)
        # Not to be guessed, so that an answer cannot be written before its question.
        sequence = int.from_bytes(os.urandom(7), "big")
        message = {"n": sequence, "f": function, "a": [self.encode(arg) for arg in args]}
        if kwargs:
            message["k"] = {name: self.encode(arg) for name, arg in kwargs.items()}
        back = function == "call" and self.write_back
        if back:
            message["w"] = True
        self.send(message)
        swallowed, error = self.swallowed, None
        reply = self.receive(sequence)
        try:
            if "e" in reply:
                error = self.error(reply["e"])
            else:
                value = self.decode(reply["v"])
                if back:
                    self.take_back(args, [self.decode(form) for form in reply["w"]])
        except (Malformed, LookupError, TypeError, ValueError, RecursionError) as problem:
            self.fail(f"a malformed answer: {problem}")
        if isinstance(error, AssertionError):
            # It comes out of the call after all, and the test decides what that means.
            self.swallowed = swallowed
        if error is not None:
            raise error
        return value

    def check_assertions(self):
        """Raises the assertion that failed in a function of the tests and that the work caught."""
        reason, self.swallowed = self.swallowed, None
        if reason:
            raise AssertionError(reason)

    def send(self, message):
        try:
            write_line(self.writer, message)
        except OSError:
            self.fail("the work ended")

    def receive(self, sequence):
        while True:
            try:
                message = read_line(self.reader)
            except (Malformed, OSError, MemoryError) as problem:
                self.fail(f"a malformed answer: {problem}")
            if message is None:
                self.fail("the work ended")
            if "c" in message:
                self.serve(message)
            elif message.get("n") == sequence:
                return message
            else:
                self.fail("an answer to another call")

    def serve(self, message):
        """Calls a function that a test handed over."""
        self.served += 1
        if self.served > CALLBACKS:
            self.fail("too many calls back")
        try:
            function = self.own[message["f"]] if message["f"] >= 0 else None
            args = [self.decode(form) for form in message["a"]]
            kwargs = {str(name): self.decode(form) for name, form in message["k"].items()}
        except (Malformed, LookupError, TypeError, ValueError, AttributeError) as problem:
            self.fail(f"a malformed call: {problem}")
        reply = {"c": message["c"]}
        try:
            reply["v"] = self.encode(function(*args, **kwargs))
        except Exception as error:
            reply["e"] = [type(error).__name__, str(error)]
            if isinstance(error, AssertionError):
                # The work could catch it, and has no say in whether an assertion holds.
                reason = f"an assertion failed in a function of the test: {error}"
                self.swallowed = self.swallowed or reason
        self.send(reply)

    def take_back(self, args, changed):
        for before, after in zip(args, changed):
            if type(before) is not type(after):
                continue
            if type(before) is list:
                before[:] = after
            elif type(before) in (dict, set):
                before.clear()
                before.update(after)
            elif type(before) is bytearray:
                before[:] = after

    def encode(self, value):
        return encode(value, self.encode_object)

    def encode_object(self, value):
        handle = handle_of(value)
        if handle is not None:
            return ["object", handle]
        name = getattr(value, "__name__", None)
        if isinstance(name, str) and getattr(builtins, name, None) is value:
            return ["builtin", name]
        if callable(value):
            for number, known in enumerate(self.own):
                if known is value:
                    return ["own", number]
            self.own.append(value)
            return ["own", len(self.own) - 1]
        raise TypeError(f"a {type(value).__name__} cannot be passed to the work")

    def decode(self, form):
        return decode(form, self.decode_object)

    def decode_object(self, form):
        tag = form[0]
        if tag == "object":
            _, name, handle = form
            return Remote(self, number(handle), str(name))
        if tag == "based":
            _, name, plain, handle = form
            value = decode(plain, self.decode_object)
            if type(value) not in BASED:
                raise Malformed("a base that is none")
            return based(self, number(handle), value)
        if tag == "exception":
            return self.exception_class(form[1])
        if tag == "builtin":
            _, name, handle = form
            return TYPES[name] if name in TYPES else Remote(self, number(handle), "type")
        if tag == "own":
            return self.own[number(form[1])]
        raise Malformed(f"unknown tag {tag!r}")

    def exception_class(self, lineage):
        """The counterpart of an exception class: a built-in one, or one made to measure."""
        kind = None
        for module, name, handle in reversed(lineage):
            known = getattr(builtins, name, None) if module == "builtins" else None
            if isinstance(known, type) and issubclass(known, BaseException):
                kind = known
                continue
            key = number(handle)
            if key not in self.classes:
                base = kind if kind is not None and issubclass(kind, Exception) else WorkError
                if issubclass(base, FORBIDDEN):
                    base = WorkError
                body = {
                    "__module__": str(module),
                    "__getattr__": exception_attribute,
                    "__str__": exception_text,
                }
                self.classes[key] = type(str(name).rpartition(".")[2] or "Error", (base,), body)
            kind = self.classes[key]
        if kind is None or not issubclass(kind, Exception) or issubclass(kind, FORBIDDEN):
            return WorkError
        return kind

    def error(self, failure):
        kind = self.exception_class(failure["x"])
        args = [self.decode(form) for form in failure["a"]]
        text = str(failure["t"])
        try:
            error = kind(*args)
        except Exception:
            error = None
        if not isinstance(error, kind):
            name = failure["x"][0][1] if failure["x"] else "?"
            error = WorkError(f"{name}: {text}")
        if "__getattr__" in kind.__dict__:
            error._fulgurite = (self, number(failure["h"]), text)
        return error


def number(value):
    if type(value) is not int or value < 0:
        raise Malformed("not a number")
    return value


def exception_attribute(error, name):
    place = error.__dict__.get("_fulgurite")
    if place is None or name.startswith("_"):
        raise AttributeError(name)
    return place[0].apply("getattr", [Remote(place[0], place[1], "exception"), name])


def exception_text(error):
    place = error.__dict__.get("_fulgurite")
    return place[2] if place else Exception.__str__(error)


def handle_of(value):
    if isinstance(value, Remote):
        return object.__getattribute__(value, "_fulgurite")[1]
    if isinstance(value, (RemoteModule, Based)):
        return value.__dict__["_fulgurite"][1]
    return None


def attribute_is_local(name):
    return name.startswith("__") and name.endswith("__") and name not in (
        "__all__", "__doc__", "__name__", "__version__", "__qualname__", "__annotations__",
    )


class Remote:
    """An object of the work."""

    __slots__ = ("_fulgurite",)

    def __init__(self, channel, handle, kind):
        object.__setattr__(self, "_fulgurite", (channel, handle, kind))

    def __getattr__(self, name):
        if attribute_is_local(name):
            raise AttributeError(name)
        return remote(self, "getattr", name)

    def __setattr__(self, name, value):
        remote(self, "setattr", name, value)

    def __delattr__(self, name):
        remote(self, "delattr", name)

    def __call__(self, *args, **kwargs):
        channel = self._fulgurite[0]
        channel.calls += 1
        return channel.apply("call", [self, *args], kwargs)

    def __eq__(self, other):
        if isinstance(other, Remote):
            same = self._fulgurite[1] == other._fulgurite[1]
            return same or remote(self, "eq", other) is True
        return self._fulgurite[0].operators and remote(self, "eq", other) is True

    def __ne__(self, other):
        return not self == other

    def __hash__(self):
        return hash(self._fulgurite[1])

    def __contains__(self, item):
        if self._fulgurite[0].operators:
            return remote(self, "contains", item) is True
        return any(item is each or item == each for each in self)

    def __next__(self):
        # Only here may the work end an iteration: anywhere else a StopIteration of its would let
        # `map(candidate, ...)` stop early and look like success.
        item = remote(self, "next")
        if type(item) is not tuple or len(item) > 1:
            raise TypeError("not an iterator")
        if not item:
            raise StopIteration
        return item[0]

    def __instancecheck__(self, instance):
        return handle_of(instance) is not None and remote(self, "isinstance", instance) is True

    def __subclasscheck__(self, kind):
        return handle_of(kind) is not None and remote(self, "issubclass", kind) is True

    def __enter__(self):
        return remote(self, "enter")

    def __exit__(self, *_):
        remote(self, "exit")
        return False

    def __dir__(self):
        return remote(self, "dir")


def remote(stand_in, function, *args):
    return stand_in._fulgurite[0].apply(function, [stand_in, *args])


def one_sided(function):
    def method(self):
        return remote(self, function)

    return method


def two_sided(function, swapped=False):
    def method(self, other):
        channel = self._fulgurite[0]
        if not (channel.operators or isinstance(other, Remote)):
            return NotImplemented
        return channel.apply(function, [other, self] if swapped else [self, other])

    return method


def indexed(function):
    def method(self, *args):
        return remote(self, function, *args)

    return method


for _name in ("iter", "len", "bool", "str", "repr", "int", "float", "index", "abs", "neg", "invert"):
    setattr(Remote, f"__{_name}__", one_sided(_name))
for _name in ("getitem", "setitem", "delitem"):
    setattr(Remote, f"__{_name}__", indexed(_name))
for _name in ("lt", "le", "gt", "ge"):
    setattr(Remote, f"__{_name}__", two_sided(_name))
for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor"):
    setattr(Remote, f"__{_name}__", two_sided(_name))
    setattr(Remote, f"__r{_name}__", two_sided(_name, swapped=True))


class Based:
    """A value of a class of the work that derives from a built-in one (a named tuple, say): here
    a value of the built-in class, whose further attributes are asked for on the other side."""

    def __getattr__(self, name):
        if attribute_is_local(name) or "_fulgurite" not in self.__dict__:
            raise AttributeError(name)
        channel, handle = self.__dict__["_fulgurite"]
        return channel.apply("getattr", [Remote(channel, handle, "based"), name])


BASED = {
    kind: type(f"Based{kind.__name__.title()}", (Based, kind), {})
    for kind in (int, float, complex, str, bytes, bytearray, list, tuple, set, frozenset, dict)
}


def based(channel, handle, value):
    made = BASED[type(value)](value)
    made.__dict__["_fulgurite"] = (channel, handle)
    return made


class RemoteModule(types.ModuleType):
    """A module of the work."""

    def __getattr__(self, name):
        if attribute_is_local(name):
            raise AttributeError(name)
        return self.__dict__["_fulgurite"][0].apply("getattr", [self, name])

    def __setattr__(self, name, value):
        if attribute_is_local(name) or isinstance(value, types.ModuleType):
            super().__setattr__(name, value)
        else:
            self.__dict__["_fulgurite"][0].apply("setattr", [self, name, value])

    def __delattr__(self, name):
        self.__dict__["_fulgurite"][0].apply("delattr", [self, name])

    def __dir__(self):
        return self.__dict__["_fulgurite"][0].apply("dir", [self])
