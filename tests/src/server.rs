//! A small OpenAI-compatible server that answers as a test wants: late, wrong, in half.

use std::{
    io::{BufRead, BufReader, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::Arc,
    thread,
};

use serde_json::{Value, json};

/// What is answered.
pub enum Answer {
    /// The model says this.
    Text(String),
    /// A status, one more header line (or none), a body.
    Status(u16, &'static str, String),
    /// The model says this, but the connection breaks in the middle of it.
    CutOff(String),
}

/// A request for a reply.
pub struct Ask {
    /// Its JSON.
    pub body: Value,
    /// Its `authorization` header.
    pub authorization: Option<String>,
}

impl Ask {
    /// The texts of the messages of one role, in order.
    pub fn texts(&self, role: &str) -> Vec<String> {
        let messages = self.body["messages"].as_array().cloned().unwrap_or_default();
        messages
            .iter()
            .filter(|message| message["role"] == role)
            .map(|message| match &message["content"] {
                Value::Array(parts) => {
                    parts.iter().filter_map(|part| part["text"].as_str()).collect()
                }
                content => content.as_str().unwrap_or_default().to_owned(),
            })
            .collect()
    }

    /// The first thing that the user said: the task's input.
    pub fn input(&self) -> String {
        self.texts("user").into_iter().next().unwrap_or_default()
    }
}

/// The server. It serves, each connection on a thread of its own, until the test program ends.
pub struct Server {
    address: SocketAddr,
}

impl Server {
    /// Answers every request for a reply with what `answer` says; it may take its time.
    pub fn start(answer: impl Fn(&Ask) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let answer = Arc::new(answer);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let answer = Arc::clone(&answer);
                // A client that goes away, killed or not, is no failure of the server.
                thread::spawn(move || drop(serve(stream, &*answer)));
            }
        });
        Self { address }
    }

    /// The specification of its policy.
    pub fn policy(&self) -> String {
        format!("openai:http://{}/v1#m", self.address)
    }
}

fn serve(stream: TcpStream, answer: &dyn Fn(&Ask) -> Answer) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut writer = stream;
    while let Some(ask) = read(&mut reader)? {
        let Some(ask) = ask else {
            writer.write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")?;
            continue;
        };
        let (head, body, whole) = match answer(&ask) {
            Answer::Text(text) => ("200 OK".to_owned(), reply(&text), true),
            Answer::CutOff(text) => ("200 OK".to_owned(), reply(&text), false),
            Answer::Status(code, header, body) => {
                let more = if header.is_empty() { String::new() } else { format!("\r\n{header}") };
                (format!("{code} Status{more}"), body, true)
            }
        };
        let length = body.len();
        let sent = if whole { length } else { length / 2 };
        let message = format!(
            "HTTP/1.1 {head}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
        );
        writer.write_all(message.as_bytes())?;
        writer.write_all(&body.as_bytes()[..sent])?;
        if !whole {
            return writer.shutdown(Shutdown::Both);
        }
    }
    Ok(())
}

/// The next request of a connection: none at its end, and an inner none for what is no request
/// for a reply.
fn read(reader: &mut impl BufRead) -> std::io::Result<Option<Option<Ask>>> {
    let mut first = String::new();
    if reader.read_line(&mut first)? == 0 {
        return Ok(None);
    }
    let (mut length, mut authorization) = (0, None);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.trim().parse().unwrap_or(0),
            "authorization" => authorization = Some(value.trim().to_owned()),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    if !first.starts_with("POST /v1/chat/completions ") {
        return Ok(Some(None));
    }
    let body = serde_json::from_slice(&body).unwrap_or_default();
    Ok(Some(Some(Ask { body, authorization })))
}

fn reply(text: &str) -> String {
    let message = json!({ "role": "assistant", "content": text });
    json!({
        "id": "1", "object": "chat.completion", "created": 0, "model": "m",
        "choices": [{ "index": 0, "finish_reason": "stop", "message": message }],
        "usage": { "prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7 },
    })
    .to_string()
}
