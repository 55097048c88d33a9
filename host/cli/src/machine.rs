//! What a run was made with: the program's commit and the machine, for its record.

/// The commit that the program was built from; `unknown` where neither git nor
/// `FULGURITE_COMMIT` told it to the build.
pub(crate) const COMMIT: &str = env!("FULGURITE_COMMIT");

/// Version and commit, for `--version`.
pub(crate) const VERSION: &str =
    concat!(env!("CARGO_PKG_VERSION"), " (commit ", env!("FULGURITE_COMMIT"), ")");

/// Cores, memory, processor and operating system, for people.
pub(crate) fn describe() -> String {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let memory = memory(&read("/proc/meminfo"));
    let processor = processor(&read("/proc/cpuinfo"));
    let system = system(&read("/etc/os-release"), &read("/proc/sys/kernel/osrelease"));
    format!("{cores} cores, {memory}, {processor}, {system}")
}

fn memory(info: &str) -> String {
    let kib = info.lines().find_map(|line| {
        line.strip_prefix("MemTotal:")?.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
    });
    kib.map_or_else(|| "unknown memory".to_owned(), |kib| format!("{} MiB memory", kib >> 10))
}

fn processor(info: &str) -> String {
    // What the architectures call it; some tell no model at all.
    let model = info
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| matches!(name.trim(), "model name" | "Model" | "cpu model"))
        .map(|(_, model)| model.trim());
    format!("{} {}", std::env::consts::ARCH, model.unwrap_or("processor of an unknown model"))
}

fn system(release: &str, kernel: &str) -> String {
    let name = release
        .lines()
        .find_map(|line| line.strip_prefix("PRETTY_NAME="))
        .map_or(std::env::consts::OS, |name| name.trim_matches('"'));
    match kernel.trim() {
        "" => name.to_owned(),
        kernel => format!("{name}, {} {kernel}", std::env::consts::OS),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_is_described_by_what_the_system_tells() {
        assert_eq!(memory("MemFree: 1 kB\nMemTotal:       16309552 kB\n"), "15927 MiB memory");
        assert_eq!(memory(""), "unknown memory");
        assert!(
            processor("flags\t: x\nmodel name\t: Some CPU @ 3 GHz\n")
                .ends_with(" Some CPU @ 3 GHz")
        );
        assert!(processor("").contains("unknown model"));
        assert_eq!(
            system("ID=debian\nPRETTY_NAME=\"Debian GNU/Linux 13\"\n", "6.12.1\n"),
            format!("Debian GNU/Linux 13, {} 6.12.1", std::env::consts::OS)
        );
        assert!(describe().contains(" cores, "));
    }

    #[test]
    fn the_commit_is_one_word_and_part_of_the_version() {
        assert!(!COMMIT.is_empty() && !COMMIT.contains(char::is_whitespace), "{COMMIT}");
        assert!(VERSION.contains(COMMIT));
    }
}
