//! `fulgurite serve` of a tiny model, and plain HTTP to talk to it.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    process::{Child, Stdio},
};

use serde_json::{Value, json};

use crate::Project;

/// A model of this shape is made in no time; what it writes is noise.
const TINY: &str = "hidden = 32\nlayers = 2\nheads = 2\nseed = 7\n";

/// Writes the description of a tiny model; answers the specification of the policy.
pub fn tiny(project: &Project) -> String {
    format!("tiny:{}", project.write("tiny.toml", TINY).display())
}

/// A server, killed when it is dropped.
pub struct Served {
    process: Child,
    address: SocketAddr,
    /// What it told once it listened.
    pub told: Value,
}

impl Served {
    /// Serves the tiny model under the name `tiny`, on a free port of this machine unless the
    /// arguments say otherwise.
    pub fn start(project: &Project, more: &[&str], environment: &[(&str, &str)]) -> Self {
        let policy = tiny(project);
        let mut process = project
            .process(&["--json", "serve", "--policy", &policy, "--name", "tiny"])
            .args(if more.contains(&"--listen") { &[][..] } else { &["--listen", "127.0.0.1:0"] })
            .args(more)
            .envs(environment.iter().copied())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let output = process.stdout.take().expect("its output");
        let told = serde_json::Deserializer::from_reader(output).into_iter::<Value>().next();
        let told = told.expect("it tells where it listens").expect("JSON");
        let address: SocketAddr =
            told["address"].as_str().expect("an address").parse().expect("an address");
        Self { process, address, told }
    }

    /// The process's id.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Waits until it has ended; its exit code.
    pub fn wait(mut self) -> Option<i32> {
        self.process.wait().expect("it ends").code()
    }

    /// The specification of a policy that asks it.
    pub fn policy(&self) -> String {
        format!("openai:http://127.0.0.1:{}/v1#tiny", self.address.port())
    }

    /// A request with a key, if there is one; the status and the body.
    pub fn request(&self, head: &str, body: &str, key: Option<&str>) -> (u16, String) {
        let local = SocketAddr::from(([127, 0, 0, 1], self.address.port()));
        let mut stream = TcpStream::connect(local).expect("it listens");
        let key = key.map(|key| format!("authorization: Bearer {key}\r\n")).unwrap_or_default();
        // In the old version of HTTP an answer ends with its connection, a stream of events too.
        write!(stream, "{head} HTTP/1.0\r\n{key}content-length: {}\r\n\r\n{body}", body.len())
            .expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers in UTF-8");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        (status.expect("a status"), body.to_owned())
    }

    /// Asks for a greedy reply of at most twelve tokens, with these fields more.
    pub fn complete(&self, more: Value, key: Option<&str>) -> (u16, String) {
        let mut body = json!({
            "model": "tiny", "messages": [{ "role": "user", "content": "hello" }],
            "temperature": 0, "max_tokens": 12,
        });
        let fields = more.as_object().expect("an object").clone();
        body.as_object_mut().expect("an object").extend(fields);
        self.request("POST /v1/chat/completions", &body.to_string(), key)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
