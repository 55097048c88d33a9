//! Which replies were released: a harness that goes on with a reply has got it, and what a harness
//! has got must be in the store, whatever happens to the process or the disk afterwards.

use std::{
    collections::BTreeSet,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use fulgurite_trace::{EntryBody, Store};

use crate::server::{Answer, Ask, Server};

/// A server whose replies are numbered, and which sees in later requests which of them were
/// released.
#[derive(Clone, Default)]
pub struct Witness {
    seen: Arc<Seen>,
}

#[derive(Default)]
struct Seen {
    next: AtomicU64,
    released: Mutex<BTreeSet<String>>,
    inputs: Mutex<BTreeSet<String>>,
}

impl Witness {
    /// Serves; each reply takes `delay` and has about `size` bytes that do not compress.
    pub fn serve(&self, delay: Duration, size: usize) -> Server {
        let seen = Arc::clone(&self.seen);
        Server::start(move |ask| {
            seen.note(ask);
            std::thread::sleep(delay);
            let number = seen.next.fetch_add(1, Ordering::Relaxed);
            Answer::Text(format!("[reply {number}] {}", noise(number, size)))
        })
    }

    /// The replies, by their first words, that were released so far.
    pub fn released(&self) -> BTreeSet<String> {
        self.seen.released.lock().expect("no panic").clone()
    }

    /// The inputs of the tasks that were asked about since the last call.
    pub fn take_inputs(&self) -> BTreeSet<String> {
        std::mem::take(&mut *self.seen.inputs.lock().expect("no panic"))
    }

    /// Fails when a released reply is missing in the store.
    pub fn check(&self, store: &Path) {
        let released = self.released();
        if released.is_empty() {
            // The program may not have come so far as to make a store.
            return;
        }
        let kept = replies(store);
        let lost: Vec<_> = released.difference(&kept).collect();
        assert!(lost.is_empty(), "{} of {} were lost: {lost:?}", lost.len(), released.len());
    }
}

impl Seen {
    fn note(&self, ask: &Ask) {
        self.inputs.lock().expect("no panic").insert(ask.input());
        let released = ask.texts("assistant");
        let mut known = self.released.lock().expect("no panic");
        known.extend(released.iter().filter_map(|text| marker(text)));
    }
}

fn marker(text: &str) -> Option<String> {
    let end = text.find(']')?;
    text.starts_with("[reply ").then(|| text[..=end].to_owned())
}

/// Every reply that a store holds, of attempts that did not count too.
fn replies(path: &Path) -> BTreeSet<String> {
    let store = Store::open_read_only(path).expect("the store opens");
    let mut found = BTreeSet::new();
    for run in store.runs().expect("runs") {
        let run = run.record.id;
        for episode in store.episodes(&run).expect("episodes") {
            for entry in store.entries(&run, episode.episode).expect("entries") {
                if let EntryBody::Turn(turn) = entry.body {
                    found.extend(marker(&turn.reply.plain_text()));
                }
            }
        }
    }
    found
}

/// Text that no compressor makes much smaller.
fn noise(seed: u64, size: usize) -> String {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut text = String::with_capacity(size + 16);
    while text.len() < size {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        text.push_str(&format!("{state:016x}"));
    }
    text
}
