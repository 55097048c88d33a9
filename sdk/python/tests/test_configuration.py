import json
import unittest
from dataclasses import dataclass, field
from typing import Annotated, Literal

from fulgurite.configuration import NoConfig, WrongValue, from_json, parse, schema_of


@dataclass(frozen=True)
class Inner:
    depth: float = 0.5


@dataclass(frozen=True)
class Config:
    name: str
    turns: Annotated[int, "Replies at most."] = 3
    mode: Literal["fast", "slow"] = "fast"
    stop: list[str] = field(default_factory=list)
    weights: dict[str, float] = field(default_factory=dict)
    limit: int | None = None
    inner: Inner = Inner()


class Schemas(unittest.TestCase):
    def test_a_dataclass_becomes_an_object_without_other_fields(self) -> None:
        schema = schema_of(Config)
        self.assertEqual(schema["required"], ["name"])
        self.assertFalse(schema["additionalProperties"])
        self.assertEqual(
            schema["properties"]["turns"],
            {"type": "integer", "description": "Replies at most.", "default": 3},
        )
        self.assertEqual(schema["properties"]["mode"]["enum"], ["fast", "slow"])
        self.assertEqual(schema["properties"]["inner"]["default"], {"depth": 0.5})
        json.dumps(schema)

    def test_prompts_have_a_place(self) -> None:
        schema = schema_of(NoConfig, {"system": "Be brief."})
        self.assertEqual(
            list(schema["properties"]["prompts"]["properties"]), ["system"]
        )

    def test_what_has_no_schema_is_named(self) -> None:
        @dataclass
        class Bad:
            things: set[str]

        with self.assertRaisesRegex(TypeError, "set"):
            schema_of(Bad)


class Values(unittest.TestCase):
    def test_json_becomes_the_dataclass(self) -> None:
        text = '{"name": "a", "turns": 5, "weights": {"x": 1}, "inner": {"depth": 2}, "limit": 4}'
        config, prompts = parse(Config, text, {})
        self.assertEqual(config, Config("a", 5, weights={"x": 1.0}, limit=4, inner=Inner(2.0)))
        self.assertIsInstance(config.weights["x"], float)
        self.assertEqual(prompts, {})

    def test_an_empty_configuration_is_all_defaults(self) -> None:
        self.assertEqual(parse(NoConfig, "", {})[0], NoConfig())
        self.assertEqual(parse(Inner, "{}", {})[0], Inner())

    def test_what_does_not_fit_is_named(self) -> None:
        for value, words in [
            ({}, "config.name is missing"),
            ({"name": 1}, "config.name is 1; it has to be of type string"),
            ({"name": "a", "turns": True}, "config.turns is true"),
            ({"name": "a", "turns": 1.5}, "config.turns is 1.5"),
            ({"name": "a", "mode": "x"}, "config.mode is \"x\"; it has to be one of \"fast\""),
            ({"name": "a", "stop": ["a", 2]}, r"config.stop\[1\] is 2"),
            ({"name": "a", "inner": {"depth": "x"}}, "config.inner.depth is \"x\""),
            ({"name": "a", "turn": 1}, "config.turn is not known; there are: name, turns"),
            ({"name": "a", "limit": "x"}, "integer; or config.limit"),
            ([], "config is .*object"),
        ]:
            with self.subTest(value), self.assertRaisesRegex(WrongValue, words):
                from_json(Config, value, "config")

    def test_numbers_that_are_none_are_refused(self) -> None:
        with self.assertRaises(WrongValue):
            parse(Inner, '{"depth": NaN}', {})

    def test_prompts_are_tuned_by_name(self) -> None:
        named = {"system": "old", "task": "same"}
        _, prompts = parse(NoConfig, '{"prompts": {"system": "new"}}', named)
        self.assertEqual(prompts, {"system": "new", "task": "same"})
        with self.assertRaisesRegex(WrongValue, "config.prompts.x is not known"):
            parse(NoConfig, '{"prompts": {"x": "new"}}', named)
        with self.assertRaisesRegex(WrongValue, "config.prompts is not known"):
            parse(NoConfig, '{"prompts": {}}', {})

    def test_what_is_not_json_is_said_to_be_so(self) -> None:
        with self.assertRaisesRegex(WrongValue, "not JSON"):
            parse(NoConfig, "{", {})
