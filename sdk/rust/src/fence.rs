//! Fenced blocks in a model's text.

/// A fenced block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// The first word after the opening fence, in lower case; empty when there is none.
    pub language: String,
    /// What else stands on the opening line.
    pub info: String,
    /// The lines between the fences, each with its line end.
    pub body: String,
    /// Whether the closing fence is there. A reply that was cut off leaves it out.
    pub closed: bool,
}

/// The fenced blocks of a text, in order. As in CommonMark, a fence is a line of three or more
/// backticks, and a block ends with a fence of at least as many that has nothing behind it.
///
/// ```
/// let blocks = fulgurite_sdk::harness::fenced_blocks("See:\n```python\nx = 1\n```\n");
/// assert_eq!((blocks[0].language.as_str(), blocks[0].body.as_str()), ("python", "x = 1\n"));
/// ```
pub fn fenced_blocks(text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<(usize, Block)> = None;
    for line in text.split_inclusive('\n') {
        let fence = opening(line);
        match (&mut open, fence) {
            (None, Some((width, rest))) => {
                let (language, info) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
                open = Some((
                    width,
                    Block {
                        language: language.to_lowercase(),
                        info: info.trim().to_string(),
                        body: String::new(),
                        closed: false,
                    },
                ));
            }
            (None, None) => {}
            (Some((width, _)), Some((closing, ""))) if closing >= *width => {
                if let Some((_, mut block)) = open.take() {
                    block.closed = true;
                    blocks.push(block);
                }
            }
            (Some((_, block)), _) => block.body.push_str(line),
        }
    }
    blocks.extend(open.map(|(_, block)| block));
    blocks
}

/// The number of backticks of a fence and what follows them.
fn opening(line: &str) -> Option<(usize, &str)> {
    let trimmed = line.trim_start_matches(' ');
    if line.len() - trimmed.len() > 3 {
        return None;
    }
    let rest = trimmed.trim_start_matches('`');
    let width = trimmed.len() - rest.len();
    (width >= 3 && !rest.contains('`')).then(|| (width, rest.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_longer_fence_holds_a_shorter_one() {
        let blocks = fenced_blocks("````md\n```py\nx\n```\n````\n```\ny\n```");
        assert_eq!(blocks.len(), 2);
        assert_eq!(blocks[0].body, "```py\nx\n```\n");
        assert_eq!((blocks[1].language.as_str(), blocks[1].body.as_str()), ("", "y\n"));
    }

    #[test]
    fn a_block_that_is_cut_off_is_open() {
        let blocks = fenced_blocks("```Python title=a\nx = 1");
        assert_eq!(blocks[0].language, "python");
        assert_eq!(blocks[0].info, "title=a");
        assert_eq!(blocks[0].body, "x = 1");
        assert!(!blocks[0].closed);
    }

    #[test]
    fn inline_code_and_indented_fences_are_text() {
        assert!(fenced_blocks("```x``` and\n    ```py\n").is_empty());
    }
}
