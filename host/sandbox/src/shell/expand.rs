//! Expands words: parameters, substitutions, arithmetic, splitting, file names.

use super::arithmetic::{self, Failure};
use super::change::{change_case, slice};
use super::evaluate::{Evaluator, Pending};
use super::fields::{Field, Fields};
use super::glob;
use super::meter::{self, Stop};
use super::pattern::Pattern;
use super::plan::{Change, Name, Otherwise, Parameter, Piece, Word};
use super::stream::{Io, Sink};
use super::variables::Readonly;

/// Why a word has no value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Interrupt {
    /// The whole command stops.
    Stop(Stop),
    /// The shell says `message` and ends with `status`, as bash does for these.
    Fail { message: String, status: i32 },
}

impl From<Stop> for Interrupt {
    fn from(stop: Stop) -> Self {
        Self::Stop(stop)
    }
}

impl From<Failure> for Interrupt {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Stop(stop) => Self::Stop(stop),
            Failure::Message(message) => Self::Fail { message, status: 1 },
        }
    }
}

/// What `$$` and `$!` are.
const PROCESS: &[u8] = b"2";

type Expanded<T> = Result<T, Interrupt>;

/// A parameter's value before it is put into a field.
enum Value<'a> {
    Unset,
    One(Vec<u8>),
    Many(Vec<Vec<u8>>),
    /// The word of `${x:-word}` and the like.
    Word(&'a Word),
}

impl Evaluator {
    /// The fields that `words` become: arguments, or the words of `for`.
    pub(crate) async fn fields(&mut self, words: &[Word], io: &Io) -> Expanded<Vec<Vec<u8>>> {
        let mut all = Vec::new();
        let mut bytes = 0;
        for word in words {
            self.meter.charge(meter::STEP)?;
            let mut fields = Fields::new(&self.separators());
            self.add(word, true, &mut fields, io).await?;
            for field in fields.finish() {
                if field.is_pattern() && !self.options.no_glob {
                    let names = glob::expand(&field.pattern(), &self.files, &mut self.meter)?;
                    if names.is_empty() {
                        all.push(field.into_text());
                    } else {
                        all.extend(names);
                    }
                } else {
                    all.push(field.into_text());
                }
                bytes += all.last().map_or(0, Vec::len);
            }
            self.check_room(bytes)?;
        }
        self.check_room(all.iter().map(Vec::len).sum())?;
        Ok(all)
    }

    /// The one string that `word` becomes.
    pub(crate) async fn text(&mut self, word: &Word, io: &Io) -> Expanded<Vec<u8>> {
        Ok(self.field(word, io).await?.into_text())
    }

    /// The one field that `word` becomes, with what was quoted in it.
    pub(crate) async fn field(&mut self, word: &Word, io: &Io) -> Expanded<Field> {
        let mut fields = Fields::new(b"");
        self.add(word, false, &mut fields, io).await?;
        Ok(fields.join())
    }

    /// The value of an arithmetic expression.
    pub(crate) async fn number(&mut self, expression: &Word, io: &Io) -> Expanded<i64> {
        let text = self.text(expression, io).await?;
        self.meter.charge_each(text.len() + 1, meter::STEP)?;
        Ok(arithmetic::evaluate(&text, &mut self.variables)?)
    }

    fn separators(&self) -> Vec<u8> {
        self.variables.get("IFS").unwrap_or(b" \t\n").to_vec()
    }

    pub(crate) fn check_room(&self, bytes: usize) -> Result<(), Stop> {
        let room = self.limits.variable_bytes;
        if bytes > room {
            return Err(Stop::Memory(format!("arguments hold at most {room} bytes")));
        }
        Ok(())
    }

    fn add<'a>(
        &'a mut self,
        word: &'a Word,
        split: bool,
        fields: &'a mut Fields,
        io: &'a Io,
    ) -> Pending<'a, Expanded<()>> {
        Box::pin(async move {
            for piece in &word.0 {
                self.add_piece(piece, split, fields, io).await?;
                self.check_room(fields.bytes())?;
            }
            Ok(())
        })
    }

    async fn add_piece(
        &mut self,
        piece: &Piece,
        split: bool,
        fields: &mut Fields,
        io: &Io,
    ) -> Expanded<()> {
        match piece {
            Piece::Text { text, quoted } => fields.push(text, *quoted),
            Piece::Home => {
                let home = self.variables.get("HOME").unwrap_or(b"/").to_vec();
                fields.push(&home, true);
            }
            Piece::Arithmetic { expression, quoted } => {
                let value = self.number(expression, io).await?.to_string();
                self.add_value(value.as_bytes(), *quoted, split, fields)?;
            }
            Piece::Command { list, quoted } => {
                let output = self.substitute(list, io).await?;
                self.add_value(&output, *quoted, split, fields)?;
            }
            Piece::Parameter { parameter, quoted } => {
                let value = self.value(parameter, io).await?;
                match value {
                    Value::Unset => self.add_value(b"", *quoted, split, fields)?,
                    Value::One(value) => self.add_value(&value, *quoted, split, fields)?,
                    Value::Word(word) => {
                        if *quoted {
                            let text = self.text(word, io).await?;
                            fields.push(&text, true);
                        } else {
                            self.add(word, split, fields, io).await?;
                        }
                    }
                    Value::Many(values) => {
                        for (index, value) in values.iter().enumerate() {
                            if index > 0 {
                                fields.end();
                            }
                            self.add_value(value, *quoted, split, fields)?;
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn add_value(
        &mut self,
        value: &[u8],
        quoted: bool,
        split: bool,
        fields: &mut Fields,
    ) -> Result<(), Stop> {
        self.meter.charge_each(value.len() + 1, 10 * meter::BYTE)?;
        if quoted {
            fields.push(value, true);
        } else if split {
            fields.push_split(value);
        } else {
            fields.push(value, false);
        }
        Ok(())
    }

    /// The output of `$( … )`.
    async fn substitute(&mut self, list: &super::plan::List, io: &Io) -> Expanded<Vec<u8>> {
        let sink = Sink::buffer(self.limits.buffer_bytes, "a command substitution");
        let inner = Io { stdin: io.stdin.clone(), stdout: sink.clone(), stderr: io.stderr.clone() };
        self.subshell(list, &inner).await?;
        self.substituted = Some(self.status);
        let mut output = sink.take_buffer();
        while output.last() == Some(&b'\n') {
            output.pop();
        }
        output.retain(|byte| *byte != 0);
        Ok(output)
    }

    async fn value<'a>(&mut self, parameter: &'a Parameter, io: &Io) -> Expanded<Value<'a>> {
        let value = self.named(&parameter.name);
        let shown = || shown(&parameter.name);
        if let Change::Unless { colon, otherwise, word } = &parameter.change {
            return self.unless(parameter, value, (*colon, *otherwise, word), io).await;
        }
        let text = match value {
            Value::Many(values) if parameter.change == Change::Length => {
                return Ok(Value::One(values.len().to_string().into_bytes()));
            }
            Value::Many(_) | Value::Word(_) => return Ok(value),
            Value::Unset if self.options.no_unset => {
                return Err(Interrupt::Fail {
                    message: format!("{}: unbound variable", shown()),
                    status: 1,
                });
            }
            Value::Unset if parameter.change == Change::None => return Ok(Value::Unset),
            Value::Unset => Vec::new(),
            Value::One(text) => text,
        };
        let changed = match &parameter.change {
            Change::None | Change::Unless { .. } => text,
            Change::Length => text.len().to_string().into_bytes(),
            Change::Case { upper, all } => change_case(text, *upper, *all),
            Change::Trim { end, longest, pattern } => {
                let pattern = Pattern::new(&self.field(pattern, io).await?.pattern(), false);
                self.trim(&text, &pattern, *end, *longest)?
            }
            Change::Replace { place, pattern, replacement } => {
                let pattern = Pattern::new(&self.field(pattern, io).await?.pattern(), false);
                let replacement = self.text(replacement, io).await?;
                self.replace(&text, &pattern, *place, &replacement)?
            }
            Change::Slice { offset, length } => {
                let offset = self.number(offset, io).await?;
                let length = match length {
                    Some(length) => Some(self.number(length, io).await?),
                    None => None,
                };
                slice(&text, offset, length).ok_or_else(|| Interrupt::Fail {
                    message: format!("{}: substring expression < 0", shown()),
                    status: 1,
                })?
            }
        };
        Ok(Value::One(changed))
    }

    fn named(&self, name: &Name) -> Value<'static> {
        let one =
            |value: Option<&[u8]>| value.map_or(Value::Unset, |value| Value::One(value.to_vec()));
        match name {
            Name::Variable(name) => one(self.variables.get(name)),
            Name::Positional(0) => Value::One(self.script.clone()),
            Name::Positional(index) => {
                one(self.positional.get(index.saturating_sub(1)).map(Vec::as_slice))
            }
            Name::Count => Value::One(self.positional.len().to_string().into_bytes()),
            Name::Status => Value::One(self.status.to_string().into_bytes()),
            Name::Process => Value::One(PROCESS.to_vec()),
            Name::Flags => Value::One(self.options.letters().into_bytes()),
            Name::Each if self.positional.is_empty() => Value::Many(Vec::new()),
            Name::Each => Value::Many(self.positional.clone()),
            Name::Joined => {
                let separators = self.separators();
                let between = separators.get(..1).unwrap_or_default();
                Value::One(self.positional.join(between))
            }
        }
    }

    async fn unless<'a>(
        &mut self,
        parameter: &'a Parameter,
        value: Value<'a>,
        (colon, otherwise, word): (bool, Otherwise, &'a Word),
        io: &Io,
    ) -> Expanded<Value<'a>> {
        let set = match &value {
            Value::Unset => false,
            Value::One(text) => !colon || !text.is_empty(),
            Value::Many(values) => !values.is_empty(),
            Value::Word(_) => true,
        };
        match (otherwise, set) {
            (Otherwise::Replace, true) => Ok(Value::Word(word)),
            (Otherwise::Replace, false) => Ok(Value::Unset),
            (_, true) => Ok(value),
            (Otherwise::Use, false) => Ok(Value::Word(word)),
            (Otherwise::Assign, false) => {
                let Name::Variable(name) = &parameter.name else {
                    return Err(Interrupt::Fail {
                        message: format!("{}: cannot assign in this way", shown(&parameter.name)),
                        status: 1,
                    });
                };
                let text = self.text(word, io).await?;
                match self.variables.set(name, text.clone())? {
                    Ok(()) => Ok(Value::One(text)),
                    Err(Readonly) => Err(Interrupt::Fail {
                        message: format!("{name}: readonly variable"),
                        status: 1,
                    }),
                }
            }
            (Otherwise::Fail, false) => {
                let text = self.text(word, io).await?;
                let text = match text.is_empty() {
                    true => "parameter null or not set".to_owned(),
                    false => String::from_utf8_lossy(&text).into_owned(),
                };
                Err(Interrupt::Fail {
                    message: format!("{}: {text}", shown(&parameter.name)),
                    status: 127,
                })
            }
        }
    }
}

fn shown(name: &Name) -> String {
    match name {
        Name::Variable(name) => name.clone(),
        Name::Positional(index) => index.to_string(),
        Name::Each => "@".to_owned(),
        Name::Joined => "*".to_owned(),
        Name::Count => "#".to_owned(),
        Name::Status => "?".to_owned(),
        Name::Process => "$".to_owned(),
        Name::Flags => "-".to_owned(),
    }
}
