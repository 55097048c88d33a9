//! The threads that guests run on, apart from those that drive everything else.
//!
//! There are two sets. *Waiting* threads serve guests that mostly wait: for a model, a command, a
//! pipe. *Busy* threads serve guests that compute. A guest starts among the waiting ones (a
//! command among the busy ones); when an epoch tick finds it computing it moves over, and when it
//! waits for something it moves back. Both sets take turns among their guests at each tick, and
//! the operating system shares the processors between the sets, so a thousand episodes that wait
//! for a model go on at once when their replies come, however many guests compute.
//!
//! A waiting guest is a few kilobytes of state and its stack, not a thread: ten thousand of them
//! need no more threads than ten.

use std::{
    future::Future,
    io,
    num::NonZeroUsize,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    time::{Duration, Instant},
};

use tokio::{
    runtime::{Builder, Handle, Runtime},
    task::JoinHandle,
};

/// A turn of this length that ends by giving up the thread counts as computing.
const BUSY_TURN: Duration = Duration::from_micros(500);

/// Polls between looks at what comes from outside; small, since each may take a whole tick.
const INTERVAL: u32 = 3;

/// The host failed while it ran a guest; never the guest's doing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the host failed while it ran the component: {0}; please report this")]
pub struct HostFailure(pub String);

/// Runs guests. Dropping it stops all of them.
#[derive(Debug)]
pub struct Executor {
    waiting: Option<Runtime>,
    busy: Option<Runtime>,
    waiting_handle: Handle,
    busy_handle: Handle,
}

impl Executor {
    /// As many threads in each set.
    pub fn new(threads: NonZeroUsize) -> io::Result<Self> {
        let build = |name: &str| {
            Builder::new_multi_thread()
                .worker_threads(threads.get())
                .max_blocking_threads(threads.get())
                .thread_name(name)
                .global_queue_interval(INTERVAL)
                .event_interval(INTERVAL)
                .enable_all()
                .build()
        };
        let (waiting, busy) = (build("fulgurite-guest")?, build("fulgurite-busy")?);
        Ok(Self {
            waiting_handle: waiting.handle().clone(),
            busy_handle: busy.handle().clone(),
            waiting: Some(waiting),
            busy: Some(busy),
        })
    }

    /// The waiting threads. What is spawned here and calls [`Executor::run`] saves a change of
    /// threads; it must not block.
    pub fn handle(&self) -> &Handle {
        &self.waiting_handle
    }

    /// Runs a guest to its end, beginning among the waiting ones. Dropping the future stops it.
    pub async fn run<F>(&self, guest: F) -> Result<F::Output, HostFailure>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.drive(Box::pin(guest), Set::Waiting).await
    }

    /// The same, beginning among the busy ones.
    pub async fn run_busy<F>(&self, guest: F) -> Result<F::Output, HostFailure>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.drive(Box::pin(guest), Set::Busy).await
    }

    async fn drive<F>(&self, guest: Pin<Box<F>>, mut set: Set) -> Result<F::Output, HostFailure>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let mut guest = Some(guest);
        loop {
            let handle = match set {
                Set::Waiting => &self.waiting_handle,
                Set::Busy => &self.busy_handle,
            };
            let stay = Stay { guest: guest.take(), set, turns: Turns::default() };
            let here = Handle::try_current().is_ok_and(|current| current.id() == handle.id());
            let turned = if here {
                stay.await
            } else {
                StopOnDrop(handle.spawn(stay))
                    .await
                    .map_err(|error| HostFailure(error.to_string()))?
            };
            match turned {
                Turned::Done(output) => return Ok(output),
                Turned::Moves(moved) => {
                    guest = Some(moved);
                    set = set.other();
                }
                Turned::Gone => return Err(HostFailure("a guest was run twice".to_owned())),
            }
        }
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        // An ordinary drop waits for the threads, which asynchronous code must not do.
        for runtime in [self.waiting.take(), self.busy.take()].into_iter().flatten() {
            runtime.shutdown_background();
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Set {
    Waiting,
    Busy,
}

impl Set {
    fn other(self) -> Self {
        match self {
            Self::Waiting => Self::Busy,
            Self::Busy => Self::Waiting,
        }
    }
}

enum Turned<F: Future> {
    Done(F::Output),
    Moves(Pin<Box<F>>),
    /// Polled after its end; cannot be.
    Gone,
}

/// A guest as long as it belongs to one set.
struct Stay<F: Future> {
    guest: Option<Pin<Box<F>>>,
    set: Set,
    turns: Turns,
}

impl<F: Future> Future for Stay<F> {
    type Output = Turned<F>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let Some(guest) = this.guest.as_mut() else { return Poll::Ready(Turned::Gone) };
        let began = Instant::now();
        let (polled, computing) = this.turns.poll(guest.as_mut(), context);
        if let Poll::Ready(output) = polled {
            this.guest = None;
            return Poll::Ready(Turned::Done(output));
        }
        let moves = match this.set {
            Set::Waiting => computing && began.elapsed() >= BUSY_TURN,
            Set::Busy => !computing,
        };
        match this.guest.take_if(|_| moves) {
            // The new place polls it at once, which takes over the wakers of this one.
            Some(guest) => Poll::Ready(Turned::Moves(guest)),
            None => Poll::Pending,
        }
    }
}

/// Polls a future and tells whether it gave up the thread although it could go on.
#[derive(Default)]
pub(crate) struct Turns(Option<(Waker, Arc<Noted>)>);

impl Turns {
    /// One turn; the answer's second part is whether the future was woken during its own turn.
    pub(crate) fn poll<F: Future + ?Sized>(
        &mut self,
        future: Pin<&mut F>,
        context: &mut Context<'_>,
    ) -> (Poll<F::Output>, bool) {
        let noted = match &self.0 {
            Some((waker, noted)) if waker.will_wake(context.waker()) => Arc::clone(noted),
            _ => {
                let waker = context.waker().clone();
                let noted = Arc::new(Noted { woken: AtomicBool::new(false), waker: waker.clone() });
                self.0 = Some((waker, Arc::clone(&noted)));
                noted
            }
        };
        noted.woken.store(false, Ordering::Relaxed);
        let waker = Waker::from(Arc::clone(&noted));
        let polled = future.poll(&mut Context::from_waker(&waker));
        (polled, noted.woken.load(Ordering::Relaxed))
    }
}

/// A waker that notes that it was used.
struct Noted {
    woken: AtomicBool,
    waker: Waker,
}

impl Wake for Noted {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.store(true, Ordering::Relaxed);
        self.waker.wake_by_ref();
    }
}

/// Stops a spawned task when the one who waits for it goes away.
struct StopOnDrop<T>(JoinHandle<T>);

impl<T> Future for StopOnDrop<T> {
    type Output = Result<T, tokio::task::JoinError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context)
    }
}

impl<T> Drop for StopOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::{mpsc, oneshot};

    fn executor() -> Arc<Executor> {
        Arc::new(Executor::new(NonZeroUsize::MIN).unwrap())
    }

    fn thread_name() -> String {
        std::thread::current().name().unwrap_or_default().to_owned()
    }

    /// Computes for a turn and gives up the thread.
    async fn compute(turns: usize) {
        for _ in 0..turns {
            let began = Instant::now();
            while began.elapsed() < BUSY_TURN * 2 {
                std::hint::spin_loop();
            }
            let mut yielded = false;
            std::future::poll_fn(move |context| {
                if std::mem::replace(&mut yielded, true) {
                    return Poll::Ready(());
                }
                context.waker().wake_by_ref();
                Poll::Pending
            })
            .await;
        }
    }

    #[tokio::test]
    async fn a_computing_guest_moves_and_comes_back_when_it_waits() {
        let (permit, mut permits) = mpsc::unbounded_channel();
        let executor = executor();
        let (told, mut tells) = mpsc::unbounded_channel();
        let guest = async move {
            told.send(thread_name()).unwrap();
            compute(2).await;
            loop {
                told.send(thread_name()).unwrap();
                // Comes back at once when the permit is there already: then it did not wait.
                if permits.recv().await.is_none() {
                    return 7;
                }
            }
        };
        let running = tokio::spawn(async move { executor.run(guest).await });
        assert_eq!(tells.recv().await.unwrap(), "fulgurite-guest");
        assert_eq!(tells.recv().await.unwrap(), "fulgurite-busy");
        loop {
            permit.send(()).unwrap();
            if tells.recv().await.unwrap() == "fulgurite-guest" {
                break;
            }
        }
        drop(permit);
        assert_eq!(running.await.unwrap(), Ok(7));
    }

    #[tokio::test]
    async fn waiting_guests_go_on_although_others_compute_without_end() {
        let executor = executor();
        let mut busy = tokio::task::JoinSet::new();
        for _ in 0..8 {
            let executor = Arc::clone(&executor);
            busy.spawn(async move { executor.run(compute(usize::MAX)).await });
        }
        // One thread a set: were they shared, each of these would stand behind eight turns.
        let rounds = Arc::clone(&executor)
            .run(async {
                for _ in 0..100 {
                    tokio::task::yield_now().await;
                }
                100
            })
            .await;
        assert_eq!(rounds, Ok(100));
        busy.abort_all();
    }

    #[tokio::test]
    async fn dropping_the_caller_stops_the_guest() {
        struct Tell(Option<oneshot::Sender<()>>);
        impl Drop for Tell {
            fn drop(&mut self) {
                let _ = self.0.take().unwrap().send(());
            }
        }
        let (sender, dropped) = oneshot::channel();
        let (started, starts) = oneshot::channel();
        let executor = executor();
        let inner = Arc::clone(&executor);
        let running = tokio::spawn(async move {
            let tell = Tell(Some(sender));
            inner
                .run(async move {
                    let _tell = tell;
                    started.send(()).unwrap();
                    std::future::pending::<()>().await;
                })
                .await
        });
        starts.await.unwrap();
        running.abort();
        dropped.await.unwrap();
    }

    #[tokio::test]
    async fn a_panic_of_the_host_is_contained() {
        let failure = executor().run(async { panic!("oh") }).await;
        assert!(matches!(failure, Err(HostFailure(_))), "{failure:?}");
    }
}
