import unittest

from fulgurite.text import Block, clip, fenced_blocks


class Fences(unittest.TestCase):
    def test_blocks_come_in_order_with_language_and_info(self) -> None:
        text = "a\n```Bash x y\nls\n\npwd\n```\nb\n  ```\nc\n  ```  \n"
        self.assertEqual(
            fenced_blocks(text),
            [Block("bash", "x y", "ls\n\npwd\n", True), Block("", "", "c\n", True)],
        )

    def test_a_longer_fence_holds_shorter_ones(self) -> None:
        text = "````md\n```\ninner\n```\n````\n"
        self.assertEqual(fenced_blocks(text), [Block("md", "", "```\ninner\n```\n", True)])

    def test_a_block_that_is_cut_off_is_not_closed(self) -> None:
        self.assertEqual(fenced_blocks("```py\nx = 1"), [Block("py", "", "x = 1", False)])

    def test_what_is_no_fence_is_none(self) -> None:
        for text in ["", "``\nx\n``", "    ```\nx\n    ```", "``` a ` b\nx", "text ```\nx"]:
            self.assertEqual(fenced_blocks(text), [], text)

    def test_only_line_feeds_end_lines(self) -> None:
        self.assertEqual(fenced_blocks("```\na\x0b```\n```")[0].body, "a\x0b```\n")


class Clips(unittest.TestCase):
    def test_head_and_tail_stay(self) -> None:
        cut = clip("a" * 50 + "b" * 5000 + "c" * 50, 100)
        self.assertTrue(cut.startswith("a" * 50) and cut.endswith("c" * 50))
        self.assertIn("5000 characters left out", cut)
        self.assertEqual(clip("short", 5), "short")
