//! `sh` and `bash`.

use super::evaluate::{Evaluator, Flow, Step};
use super::files::describe;
use super::stream::Io;

impl Evaluator {
    /// `sh` and `bash`: `-c`, a script, or standard input.
    pub(crate) async fn shell(&mut self, mut arguments: Vec<Vec<u8>>, io: &Io) -> Step {
        let name = arguments.remove(0);
        let options = self.options;
        self.options = super::evaluate::Options::default();
        let result = self.shell_with(name, arguments, io).await;
        self.options = options;
        result
    }

    async fn shell_with(&mut self, name: Vec<u8>, mut arguments: Vec<Vec<u8>>, io: &Io) -> Step {
        let mut command = false;
        let mut check = false;
        while let Some(option) = arguments.first() {
            match option.as_slice() {
                b"--" => {
                    arguments.remove(0);
                    break;
                }
                b"--norc" | b"--noprofile" | b"--login" | b"--posix" => {}
                [b'-' | b'+', letters @ ..] if !letters.is_empty() => {
                    let on = option.starts_with(b"-");
                    let letters = letters.to_vec();
                    if letters == b"o" {
                        let setting = arguments.get(1).cloned().unwrap_or_default();
                        if !self.set_long(&setting, on) {
                            return self.fail(io, 2, "-o: invalid option name");
                        }
                        arguments.remove(0);
                    } else {
                        for letter in letters {
                            match letter {
                                b'c' => command = true,
                                b'n' => check = true,
                                b'l' | b'i' | b's' => {}
                                _ if self.set_letter(letter, on) => {}
                                _ => {
                                    let letter = char::from(letter);
                                    let message = format!("-{letter}: invalid option");
                                    return self.fail(io, 2, &message);
                                }
                            }
                        }
                    }
                }
                _ => break,
            }
            if !arguments.is_empty() {
                arguments.remove(0);
            }
        }
        let (text, name) = if command {
            if arguments.is_empty() {
                return self.fail(io, 2, "-c: option requires an argument");
            }
            let text = arguments.remove(0);
            let name = if arguments.is_empty() { name } else { arguments.remove(0) };
            (text, name)
        } else if arguments.is_empty() {
            match io.stdin.read_all(self.limits.buffer_bytes) {
                Ok(text) => (text?, name),
                Err(error) => return self.fail(io, 1, describe(error)),
            }
        } else {
            let path = arguments.remove(0);
            match self.files.read(&path, self.limits.buffer_bytes, &mut self.meter)? {
                Ok(text) => (text, path),
                Err(error) => {
                    let shown = String::from_utf8_lossy(&path).into_owned();
                    return self.fail(io, 127, &format!("{shown}: {}", describe(error)));
                }
            }
        };
        if check {
            return match self.parse(&text)? {
                Ok(_) => {
                    self.status = 0;
                    Ok(Flow::Next)
                }
                Err(refusal) => {
                    self.refuse(&refusal, io)?;
                    Ok(Flow::Next)
                }
            };
        }
        self.status = 0;
        self.run_text(&text, name, arguments, io).await
    }
}
