//! `ls`.

use fulgurite_trace::file::{FileKind, FileStat};

use super::Invocation;
use super::remove::DEPTH;
use crate::shell::files::{describe, join};
use crate::shell::meter::{self, Stop};

/// How entries are shown and ordered.
#[derive(Debug, Clone, Copy, Default)]
struct Look {
    all: bool,
    almost_all: bool,
    long: bool,
    folders_themselves: bool,
    recursive: bool,
    reverse: bool,
    by_time: bool,
    by_size: bool,
    unsorted: bool,
    slashes: bool,
    classify: bool,
    inode: bool,
    human: bool,
    commas: bool,
    follow: bool,
}

#[derive(Debug, Clone)]
struct Item {
    shown: Vec<u8>,
    path: Vec<u8>,
    stat: FileStat,
}

pub(super) fn ls(invocation: &mut Invocation<'_>) -> Result<i32, Stop> {
    let known = [
        "a|all",
        "A|almost-all",
        "l",
        "1",
        "d|directory",
        "R|recursive",
        "r|reverse",
        "t",
        "S",
        "U",
        "p",
        "F|classify",
        "i|inode",
        "h|human-readable",
        "m",
        "C",
        "n|numeric-uid-gid",
        "o",
        "g",
        "G|no-group",
        "L|dereference",
        "|color=?",
        "|group-directories-first",
        "x",
    ];
    let Some(options) = invocation.options(&known)? else { return Ok(2) };
    if options.has("group-directories-first") {
        return invocation.fail(2, "unsupported: --group-directories-first");
    }
    let look = Look {
        all: options.has("a"),
        almost_all: options.has("A"),
        long: ["l", "n", "o", "g"].iter().any(|key| options.has(key)),
        folders_themselves: options.has("d"),
        recursive: options.has("R"),
        reverse: options.has("r"),
        by_time: options.has("t"),
        by_size: options.has("S"),
        unsorted: options.has("U"),
        slashes: options.has("p"),
        classify: options.has("F"),
        inode: options.has("i"),
        human: options.has("h"),
        commas: options.has("m"),
        follow: options.has("L"),
    };
    let operands = match options.operands.is_empty() {
        true => vec![b".".to_vec()],
        false => options.operands.clone(),
    };
    let mut status = 0;
    let (mut files, mut folders) = (Vec::new(), Vec::new());
    for path in operands {
        invocation.meter.charge(meter::ENTRY)?;
        let itself = look.long || look.classify || look.folders_themselves;
        let follow = !itself || path.ends_with(b"/") || look.follow;
        let found = match invocation.files.stat(&path, follow) {
            // A dangling link is listed as itself.
            Err(_) if follow => invocation.files.stat(&path, false),
            found => found,
        };
        match found {
            Ok(stat) => {
                let item = Item { shown: path.clone(), path, stat };
                if stat.kind == FileKind::Directory && !look.folders_themselves {
                    folders.push(item);
                } else {
                    files.push(item);
                }
            }
            Err(error) => {
                let shown = String::from_utf8_lossy(&path).into_owned();
                invocation.complain(&format!("cannot access '{shown}': {}", describe(error)))?;
                status = 2;
            }
        }
    }
    let headers = look.recursive || options.operands.len() > 1;
    let any_files = !files.is_empty();
    sort(&mut files, look);
    show(invocation, &files, look)?;
    sort(&mut folders, look);
    let mut first = !any_files;
    for folder in &folders {
        if !list_folder(invocation, &folder.path, look, headers, &mut first, 0)? {
            status = 1;
        }
    }
    Ok(status)
}

fn sort(items: &mut [Item], look: Look) {
    if look.unsorted {
        return;
    }
    items.sort_by(|left, right| {
        let by_name = left.shown.cmp(&right.shown);
        let order = if look.by_time {
            right.stat.times.modified.cmp(&left.stat.times.modified).then(by_name)
        } else if look.by_size {
            right.stat.size.cmp(&left.stat.size).then(by_name)
        } else {
            by_name
        };
        if look.reverse { order.reverse() } else { order }
    });
}

fn list_folder(
    invocation: &mut Invocation<'_>,
    path: &[u8],
    look: Look,
    headers: bool,
    first: &mut bool,
    depth: usize,
) -> Result<bool, Stop> {
    let entries = match invocation.files.list(path) {
        Ok(entries) => entries,
        Err(error) => {
            let shown = String::from_utf8_lossy(path).into_owned();
            invocation
                .complain(&format!("cannot open directory '{shown}': {}", describe(error)))?;
            return Ok(false);
        }
    };
    if !std::mem::replace(first, false) {
        invocation.out(b"\n")?;
    }
    if headers {
        invocation.out(path)?;
        invocation.out(b":\n")?;
    }
    let mut items = Vec::new();
    let mut names: Vec<Vec<u8>> = Vec::new();
    if look.all {
        names.extend([b".".to_vec(), b"..".to_vec()]);
    }
    names.extend(
        entries
            .iter()
            .filter(|entry| look.all || look.almost_all || !entry.name.starts_with('.'))
            .map(|entry| entry.name.clone().into_bytes()),
    );
    for name in names {
        invocation.meter.charge(meter::ENTRY)?;
        let inner = join(path, &name);
        if let Ok(stat) = invocation.files.stat(&inner, look.follow) {
            items.push(Item { shown: name, path: inner, stat });
        }
    }
    sort(&mut items, look);
    if look.long {
        let blocks: u64 = items.iter().map(|item| item.stat.size.div_ceil(4096) * 4).sum();
        invocation.line(format!("total {blocks}").as_bytes())?;
    }
    show(invocation, &items, look)?;
    let mut whole = true;
    if look.recursive && depth < DEPTH {
        for item in &items {
            let itself = matches!(item.shown.as_slice(), b"." | b"..");
            if item.stat.kind == FileKind::Directory && !itself {
                whole &= list_folder(invocation, &item.path, look, true, first, depth + 1)?;
            }
        }
    }
    Ok(whole)
}

fn show(invocation: &mut Invocation<'_>, items: &[Item], look: Look) -> Result<(), Stop> {
    let size = |stat: &FileStat| match look.human {
        true => human(stat.size),
        false => stat.size.to_string(),
    };
    let widest = |text: fn(&FileStat) -> String| {
        items.iter().map(|item| text(&item.stat).len()).max().unwrap_or(0)
    };
    let sizes = items.iter().map(|item| size(&item.stat).len()).max().unwrap_or(0);
    let links = widest(|stat| stat.links.to_string());
    let inodes = widest(|stat| stat.identity.to_string());
    for (index, item) in items.iter().enumerate() {
        invocation.meter.charge(meter::LINE)?;
        if look.inode {
            invocation.out(format!("{:>inodes$} ", item.stat.identity).as_bytes())?;
        }
        if look.long {
            let mode = match item.stat.kind {
                FileKind::Directory => "drwxr-xr-x",
                FileKind::Symlink => "lrwxrwxrwx",
                FileKind::File => "-rw-r--r--",
            };
            let text = format!(
                "{mode} {:>links$} agent agent {:>sizes$} {} ",
                item.stat.links,
                size(&item.stat),
                super::clock::listed(item.stat.times.modified / 1_000_000_000),
            );
            invocation.out(text.as_bytes())?;
        }
        let mut name = item.shown.clone();
        match item.stat.kind {
            FileKind::Directory if look.slashes || look.classify => name.push(b'/'),
            FileKind::Symlink if look.long => {
                name.extend(b" -> ");
                name.extend(invocation.files.read_link(&item.path).unwrap_or_default().bytes());
            }
            FileKind::Symlink if look.classify => name.push(b'@'),
            _ => {}
        }
        if look.commas && index + 1 < items.len() {
            name.extend(b", ");
            invocation.out(&name)?;
        } else {
            invocation.line(&name)?;
        }
    }
    Ok(())
}

/// `1.5K`, as `-h` shows sizes: rounded up.
fn human(size: u64) -> String {
    let mut unit = 0;
    let mut divisor = 1_u64;
    while size / divisor >= 1024 && unit < 6 {
        divisor *= 1024;
        unit += 1;
    }
    let letter = ["", "K", "M", "G", "T", "P", "E"].get(unit).copied().unwrap_or_default();
    if unit == 0 {
        return size.to_string();
    }
    let tenths = (u128::from(size) * 10).div_ceil(u128::from(divisor));
    if tenths < 100 {
        format!("{}.{}{letter}", tenths / 10, tenths % 10)
    } else {
        format!("{}{letter}", tenths.div_ceil(10))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_rounded_up() {
        for (size, shown) in [
            (0, "0"),
            (1023, "1023"),
            (1024, "1.0K"),
            (1537, "1.6K"),
            (10_240, "10K"),
            (u64::MAX, "16E"),
        ] {
            assert_eq!(human(size), shown);
        }
    }
}
