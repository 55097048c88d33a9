//! Opens what redirects name.

use fulgurite_trace::file::FileError;

use super::evaluate::{Evaluator, Flow, Step};
use super::expand::Interrupt;
use super::files::describe;
use super::meter;
use super::plan::{Redirect, Stream, Target, Word};
use super::stream::{Input, Io, Sink};

impl Evaluator {
    /// The streams after all redirects, opened from left to right.
    pub(crate) async fn redirect(
        &mut self,
        redirects: &[Redirect],
        io: &Io,
    ) -> Result<Io, Interrupt> {
        let mut inner = io.clone();
        for redirect in redirects {
            self.meter.charge(meter::ENTRY)?;
            match &redirect.target {
                Target::Read(word) => {
                    let path = self.path(word, io).await?;
                    inner.stdin = self.files.input(&path).map_err(|error| failed(&path, error))?;
                }
                Target::Text(word) => {
                    inner.stdin = Input::bytes(self.text(word, io).await?);
                }
                Target::Line(word) => {
                    let mut text = self.text(word, io).await?;
                    text.push(b'\n');
                    inner.stdin = Input::bytes(text);
                }
                Target::Write(word) | Target::Append(word) => {
                    let append = matches!(redirect.target, Target::Append(_));
                    let path = self.path(word, io).await?;
                    let sink = match path.as_slice() {
                        b"/dev/stdout" => inner.stdout.clone(),
                        b"/dev/stderr" => inner.stderr.clone(),
                        _ => self
                            .files
                            .output(&path, append)
                            .map_err(|error| failed(&path, error))?,
                    };
                    set(&mut inner, redirect.stream, sink);
                }
                Target::Same(source) => {
                    let sink = match source {
                        Stream::Stderr => inner.stderr.clone(),
                        _ => inner.stdout.clone(),
                    };
                    set(&mut inner, redirect.stream, sink);
                }
            }
        }
        Ok(inner)
    }

    /// The one path that a redirect names.
    async fn path(&mut self, word: &Word, io: &Io) -> Result<Vec<u8>, Interrupt> {
        let fields = self.fields(std::slice::from_ref(word), io).await?;
        match <[Vec<u8>; 1]>::try_from(fields) {
            Ok([path]) => Ok(path),
            Err(_) => Err(Interrupt::Fail { message: "ambiguous redirect".to_owned(), status: 1 }),
        }
    }

    /// A redirect that fails fails its command, not the shell.
    pub(crate) fn redirect_failed(&mut self, interrupt: Interrupt, io: &Io) -> Step {
        match interrupt {
            Interrupt::Stop(stop) => Err(stop),
            Interrupt::Fail { message, status } => {
                self.complain(io, &message)?;
                self.status = status;
                Ok(Flow::Next)
            }
        }
    }
}

fn set(io: &mut Io, stream: Stream, sink: Sink) {
    match stream {
        Stream::Stdout => io.stdout = sink,
        Stream::Stderr => io.stderr = sink,
        Stream::Both => {
            io.stdout = sink.clone();
            io.stderr = sink;
        }
        // Standard input has no place to write to; the plan never asks for it.
        Stream::Stdin => {}
    }
}

fn failed(path: &[u8], error: FileError) -> Interrupt {
    Interrupt::Fail {
        message: format!("{}: {}", String::from_utf8_lossy(path), describe(error)),
        status: 1,
    }
}
