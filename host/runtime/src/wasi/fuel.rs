//! What the host calls of a guest cost.
//!
//! Fuel counts instructions. What the host does for a guest takes time as well, and a guest that
//! had it for nothing could reach the wall clock with little fuel, by reading a large file again
//! and again, say. So every call of WASI costs [`CALL`], and more by what it moves and looks up.
//! The unit is that of the built-in commands of the shell. Costs follow from the call and its
//! answer alone, never from a clock: the same run costs the same on every machine.
//!
//! Host functions add up what they cost in [`WasiState`], and the store pays before the guest goes
//! on. A guest that cannot pay is stopped as one that computed too long.

use wasmtime::{Store, StoreContextMut, Trap};

use super::{WasiView, state::WasiState};

/// One call, whatever it does. Each pollable that a call waits for is one more.
pub const CALL: u64 = 1_000;
/// One byte that a call moves, in either direction, or one of a path.
pub const BYTE: u64 = 1;
/// One name of a path, one name that a folder lists, one argument or variable.
pub const NAME: u64 = 1_000;

impl WasiState {
    /// Adds to what the guest has to pay.
    pub(super) fn owe(&mut self, count: u64, cost: u64) {
        self.owed = self.owed.saturating_add(count.saturating_mul(cost));
    }

    /// The same for a path that is looked up.
    pub(super) fn owe_path(&mut self, path: &str) {
        self.owe(path.split('/').count() as u64, NAME);
        self.owe(path.len() as u64, BYTE);
    }
}

/// The state of a guest that calls a function of WASI. Every function comes to it by this way.
pub(super) fn called<T: WasiView>(data: &mut T) -> &mut WasiState {
    let wasi = data.wasi();
    wasi.owe(1, CALL);
    wasi
}

/// Has the guest of a store, which must count fuel, pay for its calls.
pub(crate) fn pay_for_calls<T: WasiView>(store: &mut Store<T>) {
    // Compiled code reads its fuel anew wherever the host returns from a call or calls a function
    // of the guest (its allocator, while an answer is handed over). What it owes is paid there, so
    // nothing is owed where it does not: on the way back from a helper, such as `memory.grow`.
    store.call_hook(|store, event| if event.exiting_host() { pay(store) } else { Ok(()) });
}

fn pay<T: WasiView>(mut store: StoreContextMut<'_, T>) -> wasmtime::Result<()> {
    let owed = std::mem::take(&mut store.data_mut().wasi().owed);
    if owed == 0 {
        return Ok(());
    }
    let left = store.get_fuel()?;
    store.set_fuel(left.saturating_sub(owed))?;
    if owed > left { Err(Trap::OutOfFuel.into()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use wasmtime::{AsContextMut as _, Config, Engine};

    use super::*;
    use crate::wasi::WasiConfig;

    struct Guest(WasiState);

    impl WasiView for Guest {
        fn wasi(&mut self) -> &mut WasiState {
            &mut self.0
        }
    }

    fn guest() -> Guest {
        Guest(WasiState::new(WasiConfig::default()))
    }

    #[test]
    fn calls_and_what_they_move_and_look_up_add_up() {
        let mut guest = guest();
        called(&mut guest).owe(100, BYTE);
        called(&mut guest).owe_path("folder/file");
        assert_eq!(guest.0.owed, 2 * CALL + 2 * NAME + 111 * BYTE);
        guest.0.owe(u64::MAX, NAME);
        assert_eq!(guest.0.owed, u64::MAX, "no wrapping around");
    }

    #[test]
    fn a_guest_pays_once_and_is_stopped_when_it_cannot() {
        let mut config = Config::new();
        config.consume_fuel(true);
        let mut store = Store::new(&Engine::new(&config).unwrap(), guest());
        store.set_fuel(5 * CALL).unwrap();
        called(store.data_mut());
        for _ in 0..2 {
            pay(store.as_context_mut()).unwrap();
            assert_eq!(store.get_fuel().unwrap(), 4 * CALL);
        }
        called(store.data_mut()).owe(4 * CALL, BYTE);
        let error = pay(store.as_context_mut()).unwrap_err();
        assert_eq!(error.downcast_ref(), Some(&Trap::OutOfFuel));
        assert_eq!(store.get_fuel().unwrap(), 0);
    }
}
