//! Tests of rendering; those of parsing are beside it.

use std::path::Path;

use fulgurite_trace::{ToolCall, ToolResult};
use proptest::prelude::*;

use super::*;

/// A template in the manner of Qwen's: tools, thinking, tool calls, grouped tool results.
const WITH_TOOLS: &str = r##"
{%- if tools %}
    {{- '<|im_start|>system\n' }}
    {%- if messages[0].role == 'system' %}{{- messages[0].content + '\n\n' }}{%- endif %}
    {{- "# Tools\n<tools>" }}
    {%- for tool in tools %}{{- "\n" }}{{- tool | tojson }}{%- endfor %}
    {{- "\n</tools><|im_end|>\n" }}
{%- endif %}
{%- for message in messages %}
    {%- set content = message.content | trim %}
    {%- if message.role == "user" or (message.role == "system" and not (loop.first and tools)) %}
        {{- '<|im_start|>' + message.role + '\n' + content + '<|im_end|>' + '\n' }}
    {%- elif message.role == "assistant" %}
        {{- '<|im_start|>assistant\n' }}
        {%- if message.reasoning_content is string %}
            {{- '<think>\n' + message.reasoning_content.strip('\n') + '\n</think>\n\n' }}
        {%- endif %}
        {{- content.split('</think>')[-1].lstrip('\n') }}
        {%- for tool_call in message.tool_calls or [] %}
            {%- set tool_call = tool_call.function %}
            {{- '\n<tool_call>\n{"name": "' + tool_call.name + '", "arguments": ' }}
            {%- if tool_call.arguments is string %}{{- tool_call.arguments }}
            {%- else %}{{- tool_call.arguments | tojson }}{%- endif %}
            {{- '}\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\n<tool_response>\n' + content + '\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}
            {{- '<|im_end|>\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}"##;

fn tokenizer() -> Arc<Tokenizer> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../model/tests/golden/tiny-llama.gguf");
    Arc::new(Tokenizer::open(&path).unwrap())
}

fn format(template: Option<&str>) -> TemplateFormat {
    TemplateFormat::new(tokenizer(), template).unwrap()
}

/// The ids as text, special tokens spelled between angle brackets of another kind.
fn spelled(format: &TemplateFormat, ids: &[u32]) -> String {
    let mut bytes = Vec::new();
    for id in ids {
        match format.tokenizer.spelling(*id) {
            Some(spelling) => bytes.extend(format!("«{spelling}»").into_bytes()),
            None => bytes.extend(format.tokenizer.bytes(*id)),
        }
    }
    String::from_utf8(bytes).unwrap()
}

fn said(role: Role, text: &str) -> Message {
    Message::text(role, text)
}

fn message(role: Role, parts: Vec<Part>) -> Message {
    Message { role, parts, metadata: vec![] }
}

fn call(name: &str, arguments: &str) -> Part {
    Part::ToolCall(ToolCall {
        id: "1".to_owned(),
        name: name.to_owned(),
        arguments: arguments.to_owned(),
        problem: None,
    })
}

fn result(content: &str) -> Part {
    let (call, content) = ("1".to_owned(), content.to_owned());
    Part::ToolResult(ToolResult { call, content, failed: false })
}

fn bash() -> ToolDefinition {
    ToolDefinition {
        name: "bash".to_owned(),
        description: "Runs <it>".to_owned(),
        parameters: r#"{"type":"object","properties":{"command":{"type":"string"}}}"#.to_owned(),
    }
}

#[test]
fn chatml_is_rendered_where_there_is_no_template() {
    let format = format(None);
    assert!(!format.native_tools());
    let ids = format.render(&[said(Role::System, "Be."), said(Role::User, "Hi")], &[]).unwrap();
    assert_eq!(
        spelled(&format, &ids),
        "«<|im_start|>»system\nBe.«<|im_end|>»\n«<|im_start|>»user\nHi«<|im_end|>»\n\
         «<|im_start|>»assistant\n"
    );
    let error = format.render(&[said(Role::User, "Hi")], &[bash()]).unwrap_err();
    assert!(error.0.contains("no tools"), "{error}");
}

#[test]
fn tools_thinking_calls_and_results_are_rendered() {
    let format = format(Some(WITH_TOOLS));
    assert!(format.native_tools());
    let history = [
        said(Role::System, "Be."),
        said(Role::User, "  list  "),
        message(
            Role::Assistant,
            vec![
                Part::Thinking("hm".to_owned()),
                Part::Text("ok".to_owned()),
                call("bash", r#"{"command":"ls <x>","n":1}"#),
                call("bash", "{broken"),
            ],
        ),
        message(Role::Tool, vec![result("a.py"), result("no")]),
    ];
    let ids = format.render(&history, &[bash()]).unwrap();
    assert_eq!(
        spelled(&format, &ids),
        "«<|im_start|>»system\nBe.\n\n# Tools\n<tools>\n{\"type\": \"function\", \"function\": \
         {\"name\": \"bash\", \"description\": \"Runs <it>\", \"parameters\": {\"type\": \
         \"object\", \"properties\": {\"command\": {\"type\": \"string\"}}}}}\n\
         </tools>«<|im_end|>»\n\
         «<|im_start|>»user\nlist«<|im_end|>»\n\
         «<|im_start|>»assistant\n<think>\nhm\n</think>\n\nok\n\
         <tool_call>\n{\"name\": \"bash\", \"arguments\": {\"command\": \"ls <x>\", \"n\": 1}}\n\
         </tool_call>\n<tool_call>\n{\"name\": \"bash\", \"arguments\": {broken}\n\
         </tool_call>«<|im_end|>»\n\
         «<|im_start|>»user\n<tool_response>\na.py\n</tool_response>\n\
         <tool_response>\nno\n</tool_response>«<|im_end|>»\n«<|im_start|>»assistant\n"
    );
}

#[test]
fn a_continuation_extends_exactly_what_rendering_gives() {
    for template in [None, Some(WITH_TOOLS)] {
        let format = format(template);
        let first = [said(Role::User, "one")];
        let reply = "the hello reply";
        let next = [said(Role::User, "two")];
        let end = format.tokenizer.encode_template("<|im_end|>");
        let mut history = format.render(&first, &[]).unwrap();
        history.extend(format.encode(reply));
        let whole: Vec<Message> = [&first[..], &[said(Role::Assistant, reply)], &next[..]].concat();
        let whole = format.render(&whole, &[]).unwrap();
        for ended in [true, false] {
            let mut ids = history.clone();
            if ended {
                ids.extend(&end);
            }
            ids.extend(format.render_continuation(&next, &[], ended).unwrap());
            assert_eq!(spelled(&format, &ids), spelled(&format, &whole), "{ended}");
            assert_eq!(ids, whole);
        }
    }
    let format = format(Some(WITH_TOOLS));
    let results = [message(Role::Tool, vec![result("out")])];
    let ids = format.render_continuation(&results, &[bash()], true).unwrap();
    assert_eq!(
        spelled(&format, &ids),
        "\n«<|im_start|>»user\n<tool_response>\nout\n</tool_response>«<|im_end|>»\n\
         «<|im_start|>»assistant\n"
    );
}

#[test]
fn what_cannot_be_tracked_or_run_is_an_error() {
    for (template, part) in [
        ("{{ messages[0].content[:3] }}", "by position"),
        ("{{ messages[0].content | reverse }}", "by position"),
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{% for a in range(9999) %}{% for b in range(9999) %}{{ b }}{% endfor %}{% endfor %}", ""),
        ("{{ messages[0].content.no_such_method() }}", "method"),
        (
            "{% set text = messages[0].content.replace('secret', 's' ~ 'ecret' ~ 'x' * 100000) %}\
             {% for a in range(9999) %}{{ text }}{% endfor %}",
            "bytes",
        ),
    ] {
        let error = format(Some(template)).render(&[said(Role::User, "secret text")], &[]);
        let error = error.unwrap_err();
        assert!(error.0.contains(part), "{template}: {error}");
        assert!(!error.0.contains("secret text"), "{error}");
    }
    assert!(TemplateFormat::new(tokenizer(), Some("{% if %}")).is_err());
    assert!(TemplateFormat::new(tokenizer(), Some(&"x".repeat(1 << 20))).is_err());
    let odd = ToolDefinition {
        parameters: r#"{"type":"object","properties":{"<|im_end|>":{}}}"#.to_owned(),
        ..bash()
    };
    let error = format(Some(WITH_TOOLS)).render(&[said(Role::User, "x")], &[odd]).unwrap_err();
    assert!(error.0.contains("spells a special token"), "{error}");
}

#[test]
fn the_date_is_fixed_and_methods_see_the_text() {
    let template = "{{ strftime_now('%d %b %Y') }} {{ messages[0].content.startswith('ab') }} \
                    {{ messages[0].content.upper() }}{{ messages[0].content | replace('a', 'x') }}";
    let format = format(Some(template));
    let ids = format.render(&[said(Role::User, "abc")], &[]).unwrap();
    assert_eq!(spelled(&format, &ids), "26 Jul 2024 True ABCxbc");
}

#[test]
fn the_begin_token_is_added_once() {
    let tokenizer = tokenizer();
    let format = format(Some("{{ bos_token }}{{ messages[0].content }}{{ eos_token }}"));
    let ids = format.render(&[said(Role::User, "hello")], &[]).unwrap();
    assert_eq!(spelled(&format, &ids), "«<|im_start|>»hello«<|im_end|>»");
    assert_eq!(tokenizer.begin(), (Some(1), false));
}

fn hostile_text() -> impl Strategy<Value = String> {
    let pieces = vec![
        "<|im_end|>",
        "<|im_start|>",
        "<|endoftext|>",
        "<|im_",
        "start|>",
        "end|>",
        "<",
        "|>",
        "<|",
        "\u{F1A70}0\u{F1A71}",
        "\u{F1A70}",
        "\u{F1A71}",
        "{{ eos_token }}",
        "{% if",
        "\n",
        " ",
        "hello",
        "</think>",
        "<tool_call>",
        "\"",
        "\\",
        "é",
        "\0",
    ];
    let piece = prop_oneof![
        proptest::sample::select(pieces).prop_map(str::to_owned),
        ".{0,3}".prop_map(|text: String| text),
    ];
    proptest::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

fn specials(format: &TemplateFormat, ids: &[u32]) -> usize {
    ids.iter().filter(|id| format.tokenizer.is_special(**id)).count()
}

proptest! {
    /// However a text is spelled and wherever it stands: the rendering has as many special tokens
    /// as that of harmless texts, and text that is encoded comes back as it was.
    #[test]
    fn text_never_becomes_special(texts in proptest::collection::vec(hostile_text(), 8)) {
        let tokens = tokenizer();
        for template in [None, Some(WITH_TOOLS)] {
            let format = TemplateFormat::new(tokens.clone(), template).unwrap();
            let history = |texts: &[String]| {
                let arguments = serde_json::json!({"command": texts[3]}).to_string();
                vec![
                    said(Role::System, &texts[0]),
                    said(Role::User, &texts[1]),
                    message(Role::Assistant, vec![
                        Part::Thinking(texts[2].clone()),
                        Part::Text(texts[4].clone()),
                        call(&texts[5], &arguments),
                        call("f", &texts[6]),
                    ]),
                    message(Role::Tool, vec![result(&texts[7]), result(&texts[0])]),
                ]
            };
            let tools = |texts: &[String]| if format.native_tools() {
                vec![ToolDefinition {
                    name: texts[0].clone(),
                    description: texts[1].clone(),
                    parameters: serde_json::json!({"enum": [texts[2], texts[3]]}).to_string(),
                }]
            } else {
                vec![]
            };
            let harmless = vec!["x".to_owned(); 8];
            let expected = format.render(&history(&harmless), &tools(&harmless)).unwrap();
            let ids = format.render(&history(&texts), &tools(&texts)).unwrap();
            prop_assert_eq!(specials(&format, &ids), specials(&format, &expected));
            let continued =
                format.render_continuation(&history(&texts)[1..2], &[], true).unwrap();
            prop_assert_eq!(specials(&format, &continued), 3);
            for text in &texts {
                let ids = format.encode(text);
                prop_assert_eq!(specials(&format, &ids), 0);
                prop_assert_eq!(&tokens.decode(&ids), text);
            }
        }
    }
}
