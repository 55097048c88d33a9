//! What a running process holds of the machine, from `/proc`.

use std::{fs, path::Path};

/// What a process holds.
#[derive(Debug, Clone, Copy)]
pub struct Held {
    /// Resident memory now, in MiB.
    pub resident: u64,
    /// The most it ever had, in MiB.
    pub peak: u64,
    /// Open file descriptors.
    pub files: usize,
    /// Threads.
    pub threads: u64,
}

impl Held {
    /// Of a process that runs; none once it has ended.
    pub fn by(process: u32) -> Option<Self> {
        let place = Path::new("/proc").join(process.to_string());
        let status = fs::read_to_string(place.join("status")).ok()?;
        let number = |name: &str| -> Option<u64> {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().next()?.parse().ok()
        };
        Some(Self {
            resident: number("VmRSS:")? >> 10,
            peak: number("VmHWM:")? >> 10,
            files: fs::read_dir(place.join("fd")).ok()?.count(),
            threads: number("Threads:")?,
        })
    }
}

/// The names in a folder.
pub fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder").flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}
