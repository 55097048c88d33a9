//! Deeds with a model.
//!
//! | `do` | deed |
//! |---|---|
//! | `turn` | one turn; the answer is the reply |
//! | `turns` | `count` turns of one conversation, sending `text` from the second on |
//! | `nothing` | no turn; the answer is empty |
//! | `answer` | no turn; the answer is `text` |
//! | `parallel` | `count` sub-agents at once, taken as they come in; replies joined by lines |
//! | `branch` | a turn, then a branch at it, one more turn in each |
//! | `restart` | a turn, a restart with `text`, a turn |
//! | `chat` | two stateless calls, the second with the first one's history |
//! | `generate` | continues the token ids 1, 2, 3 |
//! | `chunks` | one streamed reply; the pieces as JSON |
//! | `busy` | starts twice; answers the second one's error |
//! | `cancel` | starts, cancels, then takes another turn |
//! | `abandon` | starts `count` replies in as many conversations and returns without them |
//! | `tools` | offers a tool, answers its calls with `text` until there are none |
//! | `info` | what the policy can do |
//! | `until-error` | takes turns until one fails; the answer is the error |
//! | `ignore-cancel` | takes turns until one fails, then computes for ever |
//! | `huge-message` | sends `size` bytes |
//! | `error-before` | fails before any model output |
//! | `error-after` | fails after a model's reply |
//! | `score` | claims a score through every note it can write |

use fulgurite_sdk::harness::*;
use serde_json::json;

use crate::Config;

type Ended = Result<Outcome, Failure>;

pub(crate) fn run(episode: &Episode<Config>) -> Option<Ended> {
    let config = &episode.config;
    let input = episode.task.input.as_str();
    Some(match config.deed.as_str() {
        "turn" => turn(episode, input),
        "turns" => turns(episode),
        "nothing" => Ok(Outcome::submitted("")),
        "answer" => Ok(Outcome::submitted(config.text.clone())),
        "parallel" => parallel(episode),
        "branch" => branch(episode),
        "restart" => restart(episode),
        "chat" => chat(episode),
        "generate" => generated(),
        "chunks" => chunks(episode),
        "busy" => busy(episode),
        "cancel" => cancel(episode),
        "abandon" => abandon(episode),
        "tools" => tools(episode),
        "info" => info(),
        "until-error" => until_error(episode),
        "ignore-cancel" => {
            let _ = until_error(episode);
            crate::limits::spin()
        }
        "huge-message" => turn(episode, &"x".repeat(config.size as usize)),
        "error-before" => Err("failed before any output".into()),
        "error-after" => turn(episode, input).and_then(|_| Err("failed after output".into())),
        "score" => score(),
        _ => return None,
    })
}

fn open(episode: &Episode<Config>) -> Result<Conversation, LlmError> {
    Conversation::with("policy").system(episode.prompts.get("system")).open()
}

fn turn(episode: &Episode<Config>, text: &str) -> Ended {
    Ok(Outcome::submitted(open(episode)?.send(text)?.text()))
}

fn turns(episode: &Episode<Config>) -> Ended {
    let mut conversation = open(episode)?;
    let mut reply = conversation.send(&episode.task.input)?;
    for _ in 1..episode.config.count {
        reply = conversation.send(&episode.config.text)?;
    }
    Ok(Outcome::submitted(reply.text()))
}

fn parallel(episode: &Episode<Config>) -> Ended {
    let parent = open(episode)?;
    let mut conversations = Vec::new();
    let mut pending = Vec::new();
    for index in 0..episode.config.count {
        let mut conversation =
            Conversation::with("policy").agent(&format!("sub-{index}")).parent(&parent).open()?;
        let message = format!("{} ({index})", episode.task.input);
        pending.push(conversation.start(message, &Options::default())?);
        conversations.push(conversation);
    }
    let mut texts = Vec::new();
    while !pending.is_empty() {
        let Some(first) = wait_any(&pending).into_iter().min() else { break };
        texts.push(pending.remove(first).finish()?.text());
    }
    Ok(Outcome::submitted(texts.join("\n")))
}

fn branch(episode: &Episode<Config>) -> Ended {
    let mut trunk = open(episode)?;
    let first = trunk.send(&episode.task.input)?;
    let mut twig = trunk.branch(first.turn)?;
    let ahead = trunk.send("on the trunk")?;
    let aside = twig.send("on the branch")?;
    let ids = json!([trunk.id(), twig.id()]);
    Ok(Outcome::submitted(format!("{}\n{}\n{}", first.text(), ahead.text(), aside.text()))
        .note("conversations", ids.to_string()))
}

fn restart(episode: &Episode<Config>) -> Ended {
    let mut conversation = open(episode)?;
    conversation.send(&episode.task.input)?;
    conversation.restart(&episode.config.text, "compaction")?;
    Ok(Outcome::submitted(conversation.send("and now?")?.text()))
}

fn chat(episode: &Episode<Config>) -> Ended {
    let mut history = vec![Message::user(&episode.task.input)];
    let first = Conversation::with("policy").chat(&history, &Options::default())?;
    history.push(first.message);
    history.push(Message::user("go on"));
    let second = Conversation::with("policy").chat(&history, &Options::default())?;
    Ok(Outcome::submitted(second.text()))
}

fn generated() -> Ended {
    let reply = generate("policy", &[1, 2, 3], &Options::default())?;
    let answer = json!({"tokens": reply.tokens, "log_probabilities": reply.log_probabilities});
    Ok(Outcome::submitted(answer.to_string()))
}

fn chunks(episode: &Episode<Config>) -> Ended {
    let mut pending = open(episode)?.start(&episode.task.input, &Options::default())?;
    let mut pieces = Vec::new();
    while let Some(chunk) = pending.next_chunk()? {
        pieces.push(match chunk {
            Chunk::Text(text) => json!({"text": text}),
            Chunk::Thinking(text) => json!({"thinking": text}),
        });
    }
    let text = pending.finish()?.text();
    Ok(Outcome::submitted(json!({"pieces": pieces, "text": text}).to_string()))
}

fn busy(episode: &Episode<Config>) -> Ended {
    let mut conversation = open(episode)?;
    let pending = conversation.start(&episode.task.input, &Options::default())?;
    let second = conversation.start("too early", &Options::default());
    let answer = second.err().map_or("started".to_string(), |error| error.explain());
    pending.finish()?;
    Ok(Outcome::submitted(answer))
}

fn cancel(episode: &Episode<Config>) -> Ended {
    let mut conversation = open(episode)?;
    conversation.start(&episode.task.input, &Options::default())?.cancel();
    Ok(Outcome::submitted(conversation.send("again")?.text()))
}

fn abandon(episode: &Episode<Config>) -> Ended {
    let mut kept = Vec::new();
    for _ in 0..episode.config.count {
        let mut conversation = open(episode)?;
        let pending = conversation.start(&episode.task.input, &Options::default())?;
        kept.push((conversation, pending));
    }
    // The host takes back what a guest leaves behind, in whatever order.
    std::mem::forget(kept);
    Ok(Outcome::gave_up(""))
}

#[derive(Deserialize, JsonSchema)]
struct Look {
    /// What to look at.
    what: String,
}

impl Tool for Look {
    const NAME: &'static str = "look";
    const DESCRIPTION: &'static str = "Looks at something.";
}

fn tools(episode: &Episode<Config>) -> Ended {
    let mut conversation = Conversation::with("policy").tool::<Look>().open()?;
    let mut reply = conversation.send(&episode.task.input)?;
    for _ in 0..episode.config.count {
        let results: Vec<ToolResult> = reply
            .tool_calls()
            .map(|call| match call.parse::<Look>() {
                Ok(look) => call.answer(format!("{}: {}", look.what, episode.config.text)),
                Err(problem) => call.fail(problem),
            })
            .collect();
        if results.is_empty() {
            break;
        }
        reply = conversation.send(results)?;
    }
    Ok(Outcome::submitted(reply.text()))
}

fn info() -> Ended {
    let info = model_info("policy")?;
    let answer = json!({
        "native_tools": info.native_tools,
        "context_length": info.context_length,
        "token_level": info.token_level,
    });
    Ok(Outcome::submitted(answer.to_string()))
}

fn until_error(episode: &Episode<Config>) -> Ended {
    let mut conversation = match open(episode) {
        Ok(conversation) => conversation,
        Err(error) => return Ok(Outcome::gave_up(error.explain())),
    };
    loop {
        if let Err(error) = conversation.send(&episode.task.input) {
            return Ok(Outcome::gave_up(error.explain()));
        }
    }
}

fn score() -> Ended {
    for name in ["score", "reward", "total", "fulgurite.score"] {
        trace::metric(name, 1.0);
        trace::event(name, &[("total", "1.0"), ("reward", "1.0")]);
    }
    println!("{{\"score\": 1.0}}\nOK\n1 passed");
    Ok(Outcome::submitted("").note("score", "1.0").note("reward", "1.0"))
}
