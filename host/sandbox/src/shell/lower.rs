//! From brush-parser's syntax tree to the plan; refuses what is not offered, by name.

use std::sync::Arc;

use brush_parser::ast;

use super::plan::{
    AndOr, Arm, ArmEnd, Assignment, Command, Joint, List, Piece, Pipeline, Redirect, Refusal,
    Stage, Stream, Target, Word,
};
use super::syntax::Syntax;
use super::word::{Place, constant, cut, is_name, literal};
use super::{brace, lower_test};

type Lowered<T> = Result<T, Refusal>;

/// A whole program.
pub(crate) fn program(program: &ast::Program, syntax: &Syntax) -> Lowered<List> {
    let lower = Lower { syntax: syntax.clone() };
    let mut all = Vec::new();
    for command in &program.complete_commands {
        all.extend(lower.list(command)?.0);
    }
    Ok(List(all))
}

struct Lower {
    syntax: Syntax,
}

impl Lower {
    fn list(&self, list: &ast::CompoundList) -> Lowered<List> {
        let lower = Self { syntax: self.syntax.deeper()? };
        let mut all = Vec::with_capacity(list.0.len());
        for ast::CompoundListItem(and_or, separator) in &list.0 {
            if matches!(separator, ast::SeparatorOperator::Async) {
                return Err(Refusal::unsupported("background commands (`&`)"));
            }
            all.push(lower.and_or(and_or)?);
        }
        Ok(List(all))
    }

    fn and_or(&self, list: &ast::AndOrList) -> Lowered<AndOr> {
        let mut rest = Vec::with_capacity(list.additional.len());
        for next in &list.additional {
            rest.push(match next {
                ast::AndOr::And(pipeline) => (Joint::And, self.pipeline(pipeline)?),
                ast::AndOr::Or(pipeline) => (Joint::Or, self.pipeline(pipeline)?),
            });
        }
        Ok(AndOr { first: self.pipeline(&list.first)?, rest })
    }

    fn pipeline(&self, pipeline: &ast::Pipeline) -> Lowered<Pipeline> {
        if pipeline.timed.is_some() {
            return Err(Refusal::unsupported("time"));
        }
        if pipeline.seq.is_empty() {
            return Err(Refusal::syntax("a command is missing"));
        }
        let stages = pipeline.seq.iter().map(|stage| self.stage(stage)).collect::<Lowered<_>>()?;
        Ok(Pipeline { negated: pipeline.bang, stages })
    }

    fn stage(&self, command: &ast::Command) -> Lowered<Stage> {
        match command {
            ast::Command::Simple(simple) => self.simple(simple),
            ast::Command::Compound(compound, redirects) => Ok(Stage {
                command: self.compound(compound)?,
                redirects: self.redirects(redirects.as_ref())?,
            }),
            ast::Command::ExtendedTest(test, redirects) => Ok(Stage {
                command: Command::Condition(lower_test::condition(&test.expr, &self.syntax)?),
                redirects: self.redirects(redirects.as_ref())?,
            }),
            ast::Command::Function(function) => {
                let ast::FunctionBody(body, redirects) = &function.body;
                let body = Stage {
                    command: self.compound(body)?,
                    redirects: self.redirects(redirects.as_ref())?,
                };
                let name = function.fname.value.clone();
                let size = function.to_string().len();
                Ok(Stage {
                    command: Command::Function { name, body: Arc::new(body), size },
                    redirects: Vec::new(),
                })
            }
        }
    }

    fn simple(&self, simple: &ast::SimpleCommand) -> Lowered<Stage> {
        let mut assignments = Vec::new();
        let mut words = Vec::new();
        let mut redirects = Vec::new();
        for item in simple.prefix.iter().flat_map(|prefix| &prefix.0) {
            match item {
                ast::CommandPrefixOrSuffixItem::AssignmentWord(assignment, _) => {
                    assignments.push(self.assignment(assignment)?);
                }
                ast::CommandPrefixOrSuffixItem::IoRedirect(redirect) => {
                    redirects.push(self.redirect(redirect)?);
                }
                ast::CommandPrefixOrSuffixItem::Word(word) => {
                    self.words(&word.value, &mut words)?
                }
                ast::CommandPrefixOrSuffixItem::ProcessSubstitution(..) => {
                    return Err(process_substitution());
                }
            }
        }
        if let Some(name) = &simple.word_or_name {
            self.words(&name.value, &mut words)?;
        }
        let declares = words.first().and_then(constant).is_some_and(|name| {
            matches!(name.as_slice(), b"export" | b"local" | b"readonly" | b"declare")
        });
        for item in simple.suffix.iter().flat_map(|suffix| &suffix.0) {
            match item {
                ast::CommandPrefixOrSuffixItem::Word(word) => {
                    self.words(&word.value, &mut words)?
                }
                ast::CommandPrefixOrSuffixItem::AssignmentWord(assignment, word) => {
                    if declares {
                        words.push(self.declaration(assignment)?);
                    } else if matches!(assignment.value, ast::AssignmentValue::Array(_)) {
                        return Err(arrays());
                    } else {
                        self.words(&word.value, &mut words)?;
                    }
                }
                ast::CommandPrefixOrSuffixItem::IoRedirect(redirect) => {
                    redirects.push(self.redirect(redirect)?);
                }
                ast::CommandPrefixOrSuffixItem::ProcessSubstitution(..) => {
                    return Err(process_substitution());
                }
            }
        }
        Ok(Stage { command: Command::Simple { assignments, words }, redirects })
    }

    fn words(&self, raw: &str, words: &mut Vec<Word>) -> Lowered<()> {
        for raw in brace::expand(raw)? {
            words.push(self.word(&raw)?);
        }
        Ok(())
    }

    fn word(&self, raw: &str) -> Lowered<Word> {
        cut(raw.as_bytes(), Place::Word, &self.syntax)
    }

    fn assignment(&self, assignment: &ast::Assignment) -> Lowered<Assignment> {
        let ast::AssignmentName::VariableName(name) = &assignment.name else {
            return Err(arrays());
        };
        let ast::AssignmentValue::Scalar(value) = &assignment.value else {
            return Err(arrays());
        };
        Ok(Assignment {
            name: name.clone(),
            value: self.word(&value.value)?,
            append: assignment.append,
        })
    }

    /// `name=value` as an argument of `export` and the like: never split.
    fn declaration(&self, assignment: &ast::Assignment) -> Lowered<Word> {
        let Assignment { name, value, append } = self.assignment(assignment)?;
        if append {
            return Err(Refusal::unsupported("+= after export or local"));
        }
        let mut word = literal(format!("{name}=").as_bytes());
        for mut piece in value.0 {
            match &mut piece {
                Piece::Text { quoted, .. }
                | Piece::Parameter { quoted, .. }
                | Piece::Command { quoted, .. }
                | Piece::Arithmetic { quoted, .. } => *quoted = true,
                Piece::Home => {}
            }
            word.0.push(piece);
        }
        Ok(word)
    }

    fn expression(&self, text: &str) -> Lowered<Word> {
        cut(text.as_bytes(), Place::Double, &self.syntax)
    }

    fn optional_expression(
        &self,
        expression: Option<&ast::UnexpandedArithmeticExpr>,
    ) -> Lowered<Option<Word>> {
        match expression {
            Some(expression) if !expression.value.trim().is_empty() => {
                Ok(Some(self.expression(&expression.value)?))
            }
            _ => Ok(None),
        }
    }

    fn compound(&self, compound: &ast::CompoundCommand) -> Lowered<Command> {
        Ok(match compound {
            ast::CompoundCommand::Arithmetic(arithmetic) => {
                Command::Arithmetic(self.expression(&arithmetic.expr.value)?)
            }
            ast::CompoundCommand::ArithmeticForClause(clause) => Command::ArithmeticFor {
                start: self.optional_expression(clause.initializer.as_ref())?,
                condition: self.optional_expression(clause.condition.as_ref())?,
                step: self.optional_expression(clause.updater.as_ref())?,
                body: self.list(&clause.body.list)?,
            },
            ast::CompoundCommand::BraceGroup(group) => Command::Group(self.list(&group.list)?),
            ast::CompoundCommand::Subshell(subshell) => {
                Command::Subshell(self.list(&subshell.list)?)
            }
            ast::CompoundCommand::ForClause(clause) => {
                if !is_name(clause.variable_name.as_bytes()) {
                    return Err(Refusal::syntax(format!(
                        "`{}` is no variable name",
                        clause.variable_name
                    )));
                }
                let words = match &clause.values {
                    Some(values) => {
                        let mut words = Vec::new();
                        for value in values {
                            self.words(&value.value, &mut words)?;
                        }
                        Some(words)
                    }
                    None => None,
                };
                Command::For {
                    variable: clause.variable_name.clone(),
                    words,
                    body: self.list(&clause.body.list)?,
                }
            }
            ast::CompoundCommand::CaseClause(clause) => Command::Case {
                word: self.word(&clause.value.value)?,
                arms: clause.cases.iter().map(|arm| self.arm(arm)).collect::<Lowered<_>>()?,
            },
            ast::CompoundCommand::IfClause(clause) => {
                let mut branches = vec![(self.list(&clause.condition)?, self.list(&clause.then)?)];
                let mut otherwise = None;
                for branch in clause.elses.iter().flatten() {
                    match &branch.condition {
                        Some(condition) => {
                            branches.push((self.list(condition)?, self.list(&branch.body)?));
                        }
                        None => otherwise = Some(self.list(&branch.body)?),
                    }
                }
                Command::If { branches, otherwise }
            }
            ast::CompoundCommand::WhileClause(clause) => self.repeat(clause, false)?,
            ast::CompoundCommand::UntilClause(clause) => self.repeat(clause, true)?,
            ast::CompoundCommand::Coprocess(_) => return Err(Refusal::unsupported("coproc")),
        })
    }

    fn repeat(&self, clause: &ast::WhileOrUntilClauseCommand, until: bool) -> Lowered<Command> {
        let ast::WhileOrUntilClauseCommand(condition, body, _) = clause;
        Ok(Command::While { condition: self.list(condition)?, until, body: self.list(&body.list)? })
    }

    fn arm(&self, item: &ast::CaseItem) -> Lowered<Arm> {
        let end = match item.post_action {
            ast::CaseItemPostAction::ExitCase => ArmEnd::Leave,
            ast::CaseItemPostAction::UnconditionallyExecuteNextCaseItem => ArmEnd::FallThrough,
            ast::CaseItemPostAction::ContinueEvaluatingCases => ArmEnd::TryNext,
        };
        Ok(Arm {
            patterns: item
                .patterns
                .iter()
                .map(|pattern| self.word(&pattern.value))
                .collect::<Lowered<_>>()?,
            body: item.cmd.as_ref().map(|list| self.list(list)).transpose()?,
            end,
        })
    }

    fn redirects(&self, list: Option<&ast::RedirectList>) -> Lowered<Vec<Redirect>> {
        list.iter().flat_map(|list| &list.0).map(|redirect| self.redirect(redirect)).collect()
    }

    fn redirect(&self, redirect: &ast::IoRedirect) -> Lowered<Redirect> {
        match redirect {
            ast::IoRedirect::OutputAndError(word, append) => {
                let word = self.word(&word.value)?;
                let target = if *append { Target::Append(word) } else { Target::Write(word) };
                Ok(Redirect { stream: Stream::Both, target })
            }
            ast::IoRedirect::HereString(descriptor, word) => Ok(Redirect {
                stream: input_stream(*descriptor)?,
                target: Target::Line(self.word(&word.value)?),
            }),
            ast::IoRedirect::HereDocument(descriptor, document) => {
                let text = document.doc.value.as_bytes();
                let text = if document.requires_expansion {
                    cut(text, Place::Document, &self.syntax)?
                } else {
                    literal(text)
                };
                Ok(Redirect { stream: input_stream(*descriptor)?, target: Target::Text(text) })
            }
            ast::IoRedirect::File(descriptor, kind, target) => {
                self.file_redirect(*descriptor, kind, target)
            }
        }
    }

    fn file_redirect(
        &self,
        descriptor: Option<i32>,
        kind: &ast::IoFileRedirectKind,
        target: &ast::IoFileRedirectTarget,
    ) -> Lowered<Redirect> {
        use ast::{IoFileRedirectKind as Kind, IoFileRedirectTarget as To};
        let word = match target {
            To::Filename(word) | To::Duplicate(word) => word.value.clone(),
            To::Fd(number) => number.to_string(),
            To::ProcessSubstitution(..) => return Err(process_substitution()),
        };
        match kind {
            Kind::Read => Ok(Redirect {
                stream: input_stream(descriptor)?,
                target: Target::Read(self.word(&word)?),
            }),
            Kind::Write | Kind::Clobber => Ok(Redirect {
                stream: output_stream(descriptor)?,
                target: Target::Write(self.word(&word)?),
            }),
            Kind::Append => Ok(Redirect {
                stream: output_stream(descriptor)?,
                target: Target::Append(self.word(&word)?),
            }),
            Kind::ReadAndWrite => Err(Refusal::unsupported("<>")),
            Kind::DuplicateInput => match word.as_str() {
                "0" => Ok(Redirect {
                    stream: input_stream(descriptor)?,
                    target: Target::Same(Stream::Stdin),
                }),
                "-" => Ok(Redirect {
                    stream: input_stream(descriptor)?,
                    target: Target::Read(literal(b"/dev/null")),
                }),
                _ => Err(Refusal::unsupported(format!("<&{word}"))),
            },
            Kind::DuplicateOutput => {
                let target = match word.as_str() {
                    "1" => Target::Same(Stream::Stdout),
                    "2" => Target::Same(Stream::Stderr),
                    "-" => Target::Write(literal(b"/dev/null")),
                    // `>&file` is the old spelling of `&>file`.
                    _ if descriptor.is_none()
                        && !word.starts_with(|c: char| c.is_ascii_digit()) =>
                    {
                        let target = Target::Write(self.word(&word)?);
                        return Ok(Redirect { stream: Stream::Both, target });
                    }
                    _ => return Err(Refusal::unsupported(format!(">&{word}"))),
                };
                Ok(Redirect { stream: output_stream(descriptor)?, target })
            }
        }
    }
}

fn input_stream(descriptor: Option<i32>) -> Lowered<Stream> {
    match descriptor {
        None | Some(0) => Ok(Stream::Stdin),
        Some(other) => Err(Refusal::unsupported(format!("file descriptor {other} for reading"))),
    }
}

fn output_stream(descriptor: Option<i32>) -> Lowered<Stream> {
    match descriptor {
        None | Some(1) => Ok(Stream::Stdout),
        Some(2) => Ok(Stream::Stderr),
        Some(other) => Err(Refusal::unsupported(format!("file descriptor {other}"))),
    }
}

fn arrays() -> Refusal {
    Refusal::unsupported("arrays")
}

fn process_substitution() -> Refusal {
    Refusal::unsupported("process substitution (`<( )`, `>( )`)")
}
