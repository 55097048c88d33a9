//! What was sampled stays, however it was cut into tokens.

use std::{path::Path, sync::Arc};

use fulgurite_trace::{Message, Part, Role};
use proptest::prelude::*;

use super::keep_known;
use crate::{ChatFormat, TemplateFormat, Tokenizer};

fn golden(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

fn qwen() -> TemplateFormat {
    let template = std::fs::read_to_string(golden("chat/qwen3.jinja")).unwrap();
    format(&template)
}

fn format(template: &str) -> TemplateFormat {
    let tokenizer = Tokenizer::open(&golden("tokenizers/qwen")).unwrap();
    TemplateFormat::new(Arc::new(tokenizer), Some(template)).unwrap()
}

fn said(role: Role, text: &str) -> Message {
    Message::text(role, text)
}

/// A text as ids, cut where no tokenizer would cut it.
fn sampled(format: &TemplateFormat, text: &str, cuts: &[bool]) -> Vec<u32> {
    let mut ids = vec![];
    let mut piece = String::new();
    for (character, cut) in text.chars().zip(cuts.iter().cycle()) {
        piece.push(character);
        if *cut {
            ids.extend(format.encode(&std::mem::take(&mut piece)));
        }
    }
    ids.extend(format.encode(&piece));
    ids
}

fn marker(format: &TemplateFormat, spelling: &str) -> u32 {
    format.tokenizer().encode_template(spelling)[0]
}

proptest! {
    #[test]
    fn a_reply_stays_in_the_pieces_in_which_it_was_sampled(
        pieces in prop::collection::vec(prop::sample::select(vec![
            "the", " quick", "brown", ".", "\n", " ", "def add(", "é", "e\u{301}", "🦀", "한",
            "<|im_end|>", "<|im_start|>", "</think>", "0", "\u{FFFD}",
        ]), 0..12),
        cuts in prop::collection::vec(any::<bool>(), 1..7),
        end in prop::sample::select(vec!["", "<|im_end|>", "<|endoftext|>"]),
    ) {
        let format = qwen();
        // Thinking and blanks before it are for the template to drop.
        let text = format!("I {}", pieces.concat());
        prop_assume!(!text.contains("</think>"));
        let question = said(Role::User, "what?");
        let mut known = format.render(std::slice::from_ref(&question), &[]).unwrap();
        let mut response = sampled(&format, &text, &cuts);
        if !end.is_empty() {
            response.push(marker(&format, end));
        }
        known.extend(&response);
        let whole = [question, format.parse(&response), said(Role::User, "\nand then")];
        let rendered = format.render(&whole, &[]).unwrap();
        let kept = keep_known(&format, &known, rendered.clone());
        prop_assert!(kept.starts_with(&known), "{text:?}");
        let normal = |ids: &[u32]| format.encode(&format.tokenizer().decode(ids));
        prop_assert_eq!(normal(&kept), normal(&rendered));
        let markers = |ids: &[u32]| {
            ids.iter().filter(|id| format.tokenizer().is_special(**id)).count()
        };
        prop_assert_eq!(markers(&kept), markers(&rendered));
        // The template's own end follows only where the policy gave none.
        let glue = kept[known.len()] == marker(&format, "<|im_end|>");
        prop_assert_eq!(glue, end.is_empty());
    }
}

#[test]
fn texts_that_are_normalised_stay_as_they_were_sampled() {
    let format = qwen();
    let question = said(Role::User, "what?");
    let byte = |byte: u8| format.tokenizer().encode_bytes(&[byte]);
    let mut response: Vec<u32> = "e\u{301}".bytes().flat_map(byte).collect();
    assert_ne!(format.encode("e\u{301}"), response);
    assert_eq!(format.tokenizer().decode(&response), "e\u{301}");
    response.push(marker(&format, "<|im_end|>"));
    let mut known = format.render(std::slice::from_ref(&question), &[]).unwrap();
    known.extend(&response);
    let whole = [question, format.parse(&response), said(Role::User, "x")];
    let rendered = format.render(&whole, &[]).unwrap();
    assert!(!rendered.starts_with(&known));
    assert!(keep_known(&format, &known, rendered).starts_with(&known));
}

#[test]
fn a_reply_cut_off_within_a_character_stays() {
    let format = qwen();
    let question = said(Role::User, "what?");
    let mut known = format.render(std::slice::from_ref(&question), &[]).unwrap();
    let response = format.tokenizer().encode_bytes(&"a🦀".as_bytes()[..3]);
    known.extend(&response);
    let message = format.parse(&response);
    assert_eq!(message.plain_text(), "a\u{FFFD}");
    let rendered = format.render(&[question, message, said(Role::User, "x")], &[]).unwrap();
    let kept = keep_known(&format, &known, rendered);
    assert!(kept.starts_with(&known));
    assert_eq!(kept[known.len()], marker(&format, "<|im_end|>"));
}

#[test]
fn where_no_marker_follows_a_token_that_reaches_beyond_is_cut() {
    let format = format("{% for m in messages %}{{ m.content }}\n\n{% endfor %}");
    let question = said(Role::User, "what?");
    let known = format.render(std::slice::from_ref(&question), &[]).unwrap();
    let reply = said(Role::Assistant, "OK!");
    let rendered = format.render(&[question, reply], &[]).unwrap();
    // The rendering has one token for `!` and the line ends, or none that begins behind it.
    let known = [known, format.encode("OK!")].concat();
    let kept = keep_known(&format, &known, rendered.clone());
    assert!(kept.starts_with(&known), "{known:?} {rendered:?}");
    assert_eq!(format.tokenizer().decode(&kept), format.tokenizer().decode(&rendered));
}

#[test]
fn what_the_template_drops_is_not_kept() {
    let format = qwen();
    let question = said(Role::User, "what?");
    let first = format.render(std::slice::from_ref(&question), &[]).unwrap();
    let reply = "<think>\nhm\n</think>\n\nyes";
    let response =
        [format.tokenizer().encode_template(reply), vec![marker(&format, "<|im_end|>")]].concat();
    let known = [first, response.clone()].concat();
    let message = format.parse(&response);
    assert_eq!(message.parts[0], Part::Thinking("hm".to_owned()));
    let result = Message {
        role: Role::Tool,
        parts: vec![Part::ToolResult(fulgurite_trace::ToolResult {
            call: "1".to_owned(),
            content: "x".to_owned(),
            failed: false,
        })],
        metadata: vec![],
    };
    // Within one question thinking stays, and so do the ids; the next question drops it.
    let rendered = format.render(&[question.clone(), message.clone(), result], &[]).unwrap();
    assert!(keep_known(&format, &known, rendered).starts_with(&known));
    let next = [question, message, said(Role::User, "next")];
    let rendered = format.render(&next, &[]).unwrap();
    assert_eq!(keep_known(&format, &known, rendered.clone()), rendered);
    // Nor is anything kept of another history.
    let other = format.render(&[said(Role::User, "other")], &[]).unwrap();
    assert_eq!(keep_known(&format, &known, other.clone()), other);
}
