//! Being told to end: Ctrl-C, or the signal that service managers send.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Listens from when it is made on, so that nothing that comes between two waits is lost.
pub(crate) struct Ends {
    interrupt: Option<Signal>,
    terminate: Option<Signal>,
}

impl Ends {
    /// Begins to listen. Needs a tokio runtime.
    pub(crate) fn listen() -> Self {
        let listen = |kind| signal(kind).ok();
        let interrupt = listen(SignalKind::interrupt());
        Self { interrupt, terminate: listen(SignalKind::terminate()) }
    }

    /// Waits until the program is told to end, once more.
    pub(crate) async fn told(&mut self) {
        tokio::select! {
            () = received(&mut self.interrupt) => {}
            () = received(&mut self.terminate) => {}
        }
    }
}

/// Waits for a signal; for ever where it cannot be listened to.
async fn received(stream: &mut Option<Signal>) {
    match stream {
        Some(stream) => {
            stream.recv().await;
        }
        None => std::future::pending().await,
    }
}
