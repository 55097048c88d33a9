//! Expands patterns to the names of files.

use fulgurite_trace::file::FileKind;

use super::files::{Files, join};
use super::meter::{self, Meter, Stop};
use super::pattern::Pattern;

/// Most names one pattern may become.
const NAMES: usize = 65_536;

/// Whether `pattern` holds anything but literals, escapes aside.
fn is_pattern(pattern: &[u8]) -> bool {
    let mut rest = pattern;
    while let [first, after @ ..] = rest {
        match first {
            b'*' | b'?' | b'[' => return true,
            b'\\' => rest = after.get(1..).unwrap_or_default(),
            _ => rest = after,
        }
    }
    false
}

fn unescape(pattern: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(pattern.len());
    let mut rest = pattern;
    while let [first, after @ ..] = rest {
        rest = after;
        if *first == b'\\'
            && let [escaped, after @ ..] = rest
        {
            plain.push(*escaped);
            rest = after;
        } else {
            plain.push(*first);
        }
    }
    plain
}

/// The paths that match, sorted by byte; empty when there is none.
pub(crate) fn expand(
    pattern: &[u8],
    files: &Files,
    meter: &mut Meter,
) -> Result<Vec<Vec<u8>>, Stop> {
    let absolute = pattern.starts_with(b"/");
    let components: Vec<&[u8]> = pattern.split(|byte| *byte == b'/').collect();
    let folders_only =
        components.len() > 1 && components.last().is_some_and(|last| last.is_empty());
    let components: Vec<&[u8]> =
        components.into_iter().filter(|component| !component.is_empty()).collect();
    let mut paths: Vec<Vec<u8>> = vec![if absolute { b"/".to_vec() } else { Vec::new() }];
    for (index, component) in components.iter().enumerate() {
        let last = index + 1 == components.len();
        let mut longer = Vec::new();
        let matcher = is_pattern(component).then(|| Pattern::new(component, false));
        for path in &paths {
            meter.charge(meter::ENTRY)?;
            let Some(matcher) = &matcher else {
                let path = join(path, &unescape(component));
                if files.stat(&path, !last).is_ok() {
                    longer.push(path);
                }
                continue;
            };
            let folder = if path.is_empty() { &b"."[..] } else { path };
            let Ok(entries) = files.list(folder) else { continue };
            meter.charge_each(entries.len(), meter::LINE)?;
            for entry in entries.iter() {
                let name = entry.name.as_bytes();
                if name.starts_with(b".") && !component.starts_with(b".") {
                    continue;
                }
                meter.charge_each(matcher.cost(name), 1)?;
                if !matcher.matches(name) {
                    continue;
                }
                let path = join(path, name);
                let leads_on = !last || folders_only;
                if leads_on && entry.kind != FileKind::Directory && !files.is_directory(&path) {
                    continue;
                }
                longer.push(path);
            }
            if longer.len() > NAMES {
                return Err(Stop::Memory(format!("a file pattern matches at most {NAMES} names")));
            }
        }
        paths = longer;
    }
    if folders_only {
        paths.iter_mut().for_each(|path| path.push(b'/'));
    }
    paths.sort();
    Ok(paths)
}
