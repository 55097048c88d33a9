//! A SQLite file system that remembers: every write, cut and sync goes to the real one and into a
//! log. From the log one can tell what a disk may hold when the power goes at any point: all that
//! was synced, and of the rest nothing, or any part.

use std::{
    collections::BTreeMap,
    ffi::{CStr, CString, c_char, c_int, c_void},
    ptr,
    sync::{Mutex, PoisonError},
};

use rusqlite::ffi;

/// What happened, in order.
#[derive(Debug, Clone)]
pub(super) enum Event {
    /// Bytes were written, but are not surely on the disk.
    Write { file: String, offset: usize, bytes: Vec<u8> },
    /// The file was cut, not surely on the disk.
    Truncate { file: String, size: usize },
    /// The file was removed; `surely` when its folder was synced.
    Delete { file: String, surely: bool },
    /// Everything before is on the disk, for this file.
    Sync { file: String },
    /// The store told someone that something is durable.
    Acknowledged(u32),
}

/// What happened to the files of one registered file system.
#[derive(Debug, Default)]
pub(super) struct Log {
    events: Mutex<Vec<Event>>,
}

impl Log {
    pub(super) fn push(&self, event: Event) {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).push(event);
    }

    pub(super) fn events(&self) -> Vec<Event> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// What survives of writes that were not synced.
#[derive(Debug, Clone, Copy)]
pub(super) enum Survivors {
    /// Nothing: the unkindest disk.
    None,
    /// Everything: the process died, the system did not.
    All,
    /// Some, in pieces of a sector, chosen by the seed: the liveliest disk.
    Some(u64),
}

/// The files as a disk would hold them when the power went after `events`.
pub(super) fn disk_after(events: &[Event], survivors: Survivors) -> BTreeMap<String, Vec<u8>> {
    let mut random = match survivors {
        Survivors::Some(seed) => seed | 1,
        Survivors::None | Survivors::All => 1,
    };
    let mut survives = move || match survivors {
        Survivors::None => false,
        Survivors::All => true,
        Survivors::Some(_) => {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random & 1 == 1
        }
    };
    let mut files: BTreeMap<String, (Option<Vec<u8>>, Vec<&Event>)> = BTreeMap::new();
    for event in events {
        match event {
            Event::Write { file, .. } | Event::Truncate { file, .. } => {
                files.entry(file.clone()).or_default().1.push(event);
            }
            Event::Delete { file, surely } => {
                let (durable, waiting) = files.entry(file.clone()).or_default();
                if *surely {
                    waiting.clear();
                    *durable = None;
                } else {
                    waiting.push(event);
                }
            }
            Event::Sync { file } => {
                let (durable, waiting) = files.entry(file.clone()).or_default();
                durable.get_or_insert_default();
                for event in waiting.drain(..) {
                    apply(durable, event, || true);
                }
            }
            Event::Acknowledged(_) => {}
        }
    }
    files
        .into_iter()
        .filter_map(|(name, (mut durable, waiting))| {
            for event in waiting {
                apply(&mut durable, event, &mut survives);
            }
            durable.map(|bytes| (name, bytes))
        })
        .collect()
}

const SECTOR: usize = 512;

fn apply(content: &mut Option<Vec<u8>>, event: &Event, mut survives: impl FnMut() -> bool) {
    match event {
        Event::Write { offset, bytes, .. } => {
            for (piece, chunk) in bytes.chunks(SECTOR).enumerate() {
                if survives() {
                    let content = content.get_or_insert_default();
                    let start = offset + piece * SECTOR;
                    let end = start + chunk.len();
                    if content.len() < end {
                        content.resize(end, 0);
                    }
                    content[start..end].copy_from_slice(chunk);
                }
            }
        }
        Event::Truncate { size, .. } if survives() => {
            content.get_or_insert_default().resize(*size, 0);
        }
        Event::Delete { .. } if survives() => *content = None,
        _ => {}
    }
}

/// Registers a file system under a name of its own; both live as long as the test process.
pub(super) fn register(name: &str) -> (&'static str, &'static Log) {
    let log: &'static Log = Box::leak(Box::default());
    let name: &'static str = Box::leak(name.to_owned().into_boxed_str());
    let c_name = CString::new(name).unwrap().into_raw();
    // SAFETY: the default file system is registered by SQLite itself and never goes away.
    // Copying its table and changing entries is how shims are made; ours is leaked, as SQLite
    // demands of a registered one.
    unsafe {
        let real = ffi::sqlite3_vfs_find(ptr::null());
        assert!(!real.is_null());
        let mut shim = *real;
        shim.pNext = ptr::null_mut();
        shim.zName = c_name;
        shim.szOsFile = (*real).szOsFile + size_of::<ShimFile>() as c_int;
        shim.pAppData = Box::into_raw(Box::new(Shim { real, log })).cast();
        shim.xOpen = Some(open);
        shim.xDelete = Some(delete);
        let shim = Box::into_raw(Box::new(shim));
        assert_eq!(ffi::sqlite3_vfs_register(shim, 0), ffi::SQLITE_OK);
    }
    (name, log)
}

/// Behind `pAppData`.
struct Shim {
    real: *mut ffi::sqlite3_vfs,
    log: &'static Log,
}

/// Stands before the real file in the memory that SQLite gives.
#[repr(C)]
struct ShimFile {
    base: ffi::sqlite3_file,
    log: *const Log,
    name: *mut String,
}

/// The real file, behind ours.
unsafe fn real(file: *mut ffi::sqlite3_file) -> *mut ffi::sqlite3_file {
    // SAFETY: SQLite allocates `szOsFile` bytes, which `register` made the sum of both.
    unsafe { file.cast::<ShimFile>().add(1).cast() }
}

unsafe fn log(file: *mut ffi::sqlite3_file, event: impl FnOnce(String) -> Event) {
    // SAFETY: `open` filled both pointers, and `close` is the last call for a file.
    unsafe {
        let file = file.cast::<ShimFile>();
        (*(*file).log).push(event((*(*file).name).clone()));
    }
}

/// The last component of a path; empty for nameless temporary files.
unsafe fn short_name(path: *const c_char) -> String {
    if path.is_null() {
        return String::new();
    }
    // SAFETY: SQLite passes a string that ends in zero.
    let path = unsafe { CStr::from_ptr(path) }.to_string_lossy().into_owned();
    path.rsplit('/').next().unwrap_or_default().to_owned()
}

unsafe extern "C" fn open(
    vfs: *mut ffi::sqlite3_vfs,
    path: *const c_char,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    // SAFETY: the arguments are SQLite's; `file` has room for both files.
    unsafe {
        let shim = &*(*vfs).pAppData.cast::<Shim>();
        (*file).pMethods = ptr::null();
        let behind = real(file);
        let code = (*shim.real).xOpen.unwrap()(shim.real, path, behind, flags, out_flags);
        if !(*behind).pMethods.is_null() {
            let ours = file.cast::<ShimFile>();
            (*ours).log = shim.log;
            (*ours).name = Box::into_raw(Box::new(short_name(path)));
            (*ours).base.pMethods = &METHODS;
        }
        code
    }
}

unsafe extern "C" fn delete(
    vfs: *mut ffi::sqlite3_vfs,
    path: *const c_char,
    sync_folder: c_int,
) -> c_int {
    // SAFETY: the arguments are SQLite's.
    unsafe {
        let shim = &*(*vfs).pAppData.cast::<Shim>();
        let code = (*shim.real).xDelete.unwrap()(shim.real, path, sync_folder);
        if code == ffi::SQLITE_OK {
            shim.log.push(Event::Delete { file: short_name(path), surely: sync_folder != 0 });
        }
        code
    }
}

unsafe extern "C" fn close(file: *mut ffi::sqlite3_file) -> c_int {
    // SAFETY: `open` made the name with `Box::into_raw`; this is the last call for the file.
    unsafe {
        drop(Box::from_raw((*file.cast::<ShimFile>()).name));
        (*(*real(file)).pMethods).xClose.unwrap()(real(file))
    }
}

unsafe extern "C" fn write(
    file: *mut ffi::sqlite3_file,
    data: *const c_void,
    amount: c_int,
    offset: i64,
) -> c_int {
    // SAFETY: `data` holds `amount` bytes.
    unsafe {
        let code = (*(*real(file)).pMethods).xWrite.unwrap()(real(file), data, amount, offset);
        if code == ffi::SQLITE_OK {
            let bytes = std::slice::from_raw_parts(data.cast::<u8>(), amount as usize).to_vec();
            log(file, |file| Event::Write { file, offset: offset as usize, bytes });
        }
        code
    }
}

unsafe extern "C" fn truncate(file: *mut ffi::sqlite3_file, size: i64) -> c_int {
    // SAFETY: the arguments are SQLite's.
    unsafe {
        let code = (*(*real(file)).pMethods).xTruncate.unwrap()(real(file), size);
        if code == ffi::SQLITE_OK {
            log(file, |file| Event::Truncate { file, size: size as usize });
        }
        code
    }
}

unsafe extern "C" fn sync(file: *mut ffi::sqlite3_file, flags: c_int) -> c_int {
    // SAFETY: the arguments are SQLite's.
    unsafe {
        let code = (*(*real(file)).pMethods).xSync.unwrap()(real(file), flags);
        if code == ffi::SQLITE_OK {
            log(file, |file| Event::Sync { file });
        }
        code
    }
}

/// A method that only hands its call on.
macro_rules! forward {
    ($name:ident, $method:ident, ($($argument:ident: $kind:ty),*) $(-> $result:ty)?) => {
        unsafe extern "C" fn $name(file: *mut ffi::sqlite3_file, $($argument: $kind),*) $(-> $result)? {
            // SAFETY: the real file was opened by the real file system, which has all methods of
            // the version that we announce.
            unsafe { (*(*real(file)).pMethods).$method.unwrap()(real(file), $($argument),*) }
        }
    };
}

forward!(read, xRead, (data: *mut c_void, amount: c_int, offset: i64) -> c_int);
forward!(file_size, xFileSize, (size: *mut i64) -> c_int);
forward!(lock, xLock, (level: c_int) -> c_int);
forward!(unlock, xUnlock, (level: c_int) -> c_int);
forward!(check_lock, xCheckReservedLock, (result: *mut c_int) -> c_int);
forward!(control, xFileControl, (operation: c_int, argument: *mut c_void) -> c_int);
forward!(sector_size, xSectorSize, () -> c_int);
forward!(characteristics, xDeviceCharacteristics, () -> c_int);
forward!(
    shm_map, xShmMap,
    (page: c_int, size: c_int, extend: c_int, memory: *mut *mut c_void) -> c_int
);
forward!(shm_lock, xShmLock, (offset: c_int, count: c_int, flags: c_int) -> c_int);
forward!(shm_barrier, xShmBarrier, ());
forward!(shm_unmap, xShmUnmap, (delete: c_int) -> c_int);

static METHODS: ffi::sqlite3_io_methods = ffi::sqlite3_io_methods {
    // Version 2: shared memory, no memory mapping, so that every write passes by.
    iVersion: 2,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock),
    xUnlock: Some(unlock),
    xCheckReservedLock: Some(check_lock),
    xFileControl: Some(control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(characteristics),
    xShmMap: Some(shm_map),
    xShmLock: Some(shm_lock),
    xShmBarrier: Some(shm_barrier),
    xShmUnmap: Some(shm_unmap),
    xFetch: None,
    xUnfetch: None,
};
