"""Plain data as JSON lines: the only thing that crosses between the tests and the work.

Both drivers begin with this text. `None`, booleans, strings and small integers are themselves;
everything else is a list that begins with a tag. Decoding builds exact built-in types and nothing
else, so a value that crossed has no methods of its maker.
"""

import json

LINE = 4 << 20
DEPTH = 100
SMALL = 1 << 53


class NotPlain(Exception):
    """A value that cannot cross."""


class Malformed(Exception):
    """A form that no encoder makes."""


def encode(value, otherwise, depth=0):
    """The form of a value; `otherwise(value)` gives the form of what is not plain data."""
    if depth > DEPTH:
        raise NotPlain("nested too deeply, or part of itself")
    kind = type(value)
    if value is None or kind is bool or kind is str:
        return value
    if kind is int:
        return value if -SMALL < value < SMALL else ["int", hex(value)]
    if kind is float:
        return ["float", value.hex()]
    if kind is complex:
        return ["complex", value.real.hex(), value.imag.hex()]
    if kind is bytes or kind is bytearray:
        return [kind.__name__, value.hex()]
    if kind is list or kind is tuple or kind is set or kind is frozenset:
        return [kind.__name__, [encode(item, otherwise, depth + 1) for item in value]]
    if kind is dict:
        return [
            "dict",
            [
                [encode(key, otherwise, depth + 1), encode(item, otherwise, depth + 1)]
                for key, item in value.items()
            ],
        ]
    return otherwise(value)


def decode(form, otherwise, depth=0):
    """The value of a form; `otherwise(form)` gives that of a form with an unknown tag."""
    if depth > DEPTH:
        raise Malformed("nested too deeply")
    kind = type(form)
    if form is None or kind is bool or kind is int or kind is str:
        return form
    if kind is not list or not form or type(form[0]) is not str:
        raise Malformed("not a form")
    tag, rest = form[0], form[1:]
    try:
        if tag == "int":
            (text,) = rest
            return int(text, 16)
        if tag == "float":
            (text,) = rest
            return float.fromhex(text)
        if tag == "complex":
            real, imaginary = rest
            return complex(float.fromhex(real), float.fromhex(imaginary))
        if tag == "bytes" or tag == "bytearray":
            (text,) = rest
            return {"bytes": bytes, "bytearray": bytearray}[tag].fromhex(text)
        if tag in ("list", "tuple", "set", "frozenset"):
            (items,) = rest
            make = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}[tag]
            return make([decode(item, otherwise, depth + 1) for item in items])
        if tag == "dict":
            (items,) = rest
            return {
                decode(key, otherwise, depth + 1): decode(item, otherwise, depth + 1)
                for key, item in items
            }
    except Malformed:
        raise
    except (TypeError, ValueError, OverflowError) as error:
        raise Malformed(f"{tag}: {error}") from None
    return otherwise(form)


def write_line(stream, message):
    """Sends one message."""
    line = json.dumps(message, separators=(",", ":"), allow_nan=False).encode("ascii")
    if len(line) >= LINE:
        raise NotPlain("too large to cross")
    stream.write(line + b"\n")
    stream.flush()


def read_line(stream):
    """Receives one message, or `None` at the end."""
    line = stream.readline(LINE + 1)
    if not line:
        return None
    if not line.endswith(b"\n"):
        raise Malformed("a line without an end")
    try:
        message = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"not JSON: {error}") from None
    if type(message) is not dict:
        raise Malformed("not a message")
    return message
