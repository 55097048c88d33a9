//! `sed`: what `s` and `l` make of a line.

use regex::bytes::Captures;

use super::Invocation;
use super::sed_parse::{Case, Part, Substitute};
use super::sed_run::Editor;
use crate::shell::meter::{self, Stop};

impl Editor<'_> {
    pub(super) fn substitute(
        &mut self,
        invocation: &mut Invocation<'_>,
        substitute: &Substitute,
    ) -> Result<bool, Stop> {
        if let Some(regular) = &substitute.regular {
            self.last = Some(regular.clone());
        }
        let Some(regular) = self.last.clone() else { return Ok(false) };
        let text = std::mem::take(&mut self.pattern);
        let mut result = Vec::with_capacity(text.len());
        let mut from = 0;
        let mut start = 0;
        let mut count = 0;
        let mut changed = false;
        let mut last_end = None;
        while let Some(captures) = regular.captures(&text, start, invocation.meter)? {
            let Some(found) = captures.get(0) else { break };
            let (begin, end) = (found.start(), found.end());
            // An empty match right after another match is none.
            let counts = !(begin == end && last_end == Some(begin));
            if counts {
                count += 1;
                last_end = Some(end);
            }
            if counts && count >= substitute.number {
                result.extend_from_slice(text.get(from..begin).unwrap_or_default());
                replace(invocation, &substitute.replacement, &captures, &mut result)?;
                from = end;
                changed = true;
                if !substitute.global {
                    break;
                }
            }
            start = if begin == end { end + 1 } else { end };
        }
        result.extend_from_slice(text.get(from..).unwrap_or_default());
        invocation.meter.charge_each(result.len(), meter::BYTE)?;
        self.pattern = result;
        Ok(changed)
    }
}

/// Adds a replacement to the result.
fn replace(
    invocation: &Invocation<'_>,
    parts: &[Part],
    captures: &Captures<'_>,
    result: &mut Vec<u8>,
) -> Result<(), Stop> {
    let mut lasting = Case::End;
    let mut once: Option<Case> = None;
    for part in parts {
        let text = match part {
            Part::Text(text) => text.as_slice(),
            Part::Group(group) => captures.get(*group).map_or(&b""[..], |group| group.as_bytes()),
            Part::Case(case @ (Case::UpperOne | Case::LowerOne)) => {
                once = Some(*case);
                continue;
            }
            Part::Case(case) => {
                lasting = *case;
                once = None;
                continue;
            }
        };
        for byte in text {
            let case = once.take().unwrap_or(lasting);
            result.push(match case {
                Case::Upper | Case::UpperOne => byte.to_ascii_uppercase(),
                Case::Lower | Case::LowerOne => byte.to_ascii_lowercase(),
                Case::End => *byte,
            });
        }
        invocation.check_room(result.len())?;
    }
    Ok(())
}

/// What `l` prints.
pub(super) fn listed(text: &[u8]) -> Vec<u8> {
    let mut shown: Vec<u8> = Vec::new();
    let mut width = 0;
    for byte in text {
        let part = match byte {
            b'\\' => "\\\\".to_owned(),
            7 => "\\a".to_owned(),
            8 => "\\b".to_owned(),
            12 => "\\f".to_owned(),
            b'\n' => "\\n".to_owned(),
            b'\r' => "\\r".to_owned(),
            b'\t' => "\\t".to_owned(),
            11 => "\\v".to_owned(),
            byte if byte.is_ascii_graphic() || *byte == b' ' => char::from(*byte).to_string(),
            byte => format!("\\{byte:03o}"),
        };
        if width + part.len() > 69 {
            shown.extend(b"\\\n");
            width = 0;
        }
        width += part.len();
        shown.extend(part.bytes());
    }
    shown.push(b'$');
    shown
}
