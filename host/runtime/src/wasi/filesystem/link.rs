//! The functions of `wasi:filesystem`, by hand: generated code would bring its own descriptor.

use fulgurite_trace::file::FileError;
use wasmtime::component::{Linker, LinkerInstance, Resource, ResourceType};
use wasmtime_wasi::p2::bindings::filesystem::types::{
    Advice, DescriptorFlags, DirectoryEntry, ErrorCode, NewTimestamp, OpenFlags, PathFlags,
};
use wasmtime_wasi_io::streams::{DynInputStream, DynOutputStream, Error};

use super::{
    descriptor::{Descriptor, EntryStream, descriptor_type},
    error_code,
    streams::Position,
};
use crate::wasi::{
    VERSION, WasiState, WasiView,
    fuel::{BYTE, NAME, called},
};

type Answer<T> = Result<T, ErrorCode>;
/// What a host function returns: one value, or an error that ends the guest.
type Returned<T> = wasmtime::Result<(Answer<T>,)>;

impl WasiState {
    fn descriptor(&self, descriptor: &Resource<Descriptor>) -> wasmtime::Result<&Descriptor> {
        Ok(self.table.get(descriptor)?)
    }

    /// Keeps `descriptor` unless the guest holds too many.
    fn keep(&mut self, descriptor: Answer<Descriptor>) -> Returned<Resource<Descriptor>> {
        let descriptor = match descriptor {
            Ok(_) if self.descriptors >= self.limits.descriptors => {
                return Ok((Err(ErrorCode::Quota),));
            }
            Ok(descriptor) => descriptor,
            Err(error) => return Ok((Err(error),)),
        };
        let resource = self.table.push(descriptor)?;
        self.descriptors += 1;
        Ok((Ok(resource),))
    }

    fn input(&mut self, stream: Answer<DynInputStream>) -> Returned<Resource<DynInputStream>> {
        Ok((match stream {
            Ok(stream) => Ok(self.table.push(stream)?),
            Err(error) => Err(error),
        },))
    }

    fn output(&mut self, stream: Answer<DynOutputStream>) -> Returned<Resource<DynOutputStream>> {
        Ok((match stream {
            Ok(stream) => Ok(self.table.push(stream)?),
            Err(error) => Err(error),
        },))
    }

    /// Opens a listing unless those that are open take too much memory.
    fn list(&mut self, folder: &Resource<Descriptor>) -> Returned<Resource<EntryStream>> {
        let listing = match self.descriptor(folder)?.read_directory() {
            Ok(listing) => listing,
            Err(error) => return Ok((Err(error),)),
        };
        self.owe(listing.count() as u64, NAME);
        let listed = self.listed.saturating_add(listing.bytes());
        if self.listed > 0 && listed > self.limits.listing_bytes {
            return Ok((Err(ErrorCode::Quota),));
        }
        let resource = self.table.push(listing)?;
        self.listed = listed;
        Ok((Ok(resource),))
    }

    fn close_listing(&mut self, listing: Resource<EntryStream>) -> wasmtime::Result<()> {
        let listing = self.table.delete(listing)?;
        self.listed = self.listed.saturating_sub(listing.bytes());
        Ok(())
    }

    /// Refuses paths that no tree need look at.
    fn check_path(&self, path: &str) -> Answer<()> {
        if path.len() > self.limits.path_bytes {
            Err(ErrorCode::NameTooLong)
        } else if path.contains('\0') {
            Err(ErrorCode::Invalid)
        } else {
            Ok(())
        }
    }

    /// Calls `operation` with a checked path.
    fn at<R>(
        &mut self,
        descriptor: &Resource<Descriptor>,
        path: &str,
        operation: impl FnOnce(&Descriptor, &str) -> Answer<R>,
    ) -> Returned<R> {
        self.owe_path(path);
        let descriptor = self.descriptor(descriptor)?;
        Ok((self.check_path(path).and_then(|()| operation(descriptor, path)),))
    }

    /// Calls `operation` with two checked paths.
    fn at_both<R>(
        &mut self,
        (from, from_path): (&Resource<Descriptor>, &str),
        (to, to_path): (&Resource<Descriptor>, &str),
        operation: impl FnOnce(&Descriptor, &str, &Descriptor, &str) -> Answer<R>,
    ) -> Returned<R> {
        self.owe_path(from_path);
        self.owe_path(to_path);
        let (from, to) = (self.descriptor(from)?, self.descriptor(to)?);
        let checked = self.check_path(from_path).and_then(|()| self.check_path(to_path));
        Ok((checked.and_then(|()| operation(from, from_path, to, to_path)),))
    }
}

/// Links `wasi:filesystem/types` and `preopens`.
pub(crate) fn add_to_linker<T: WasiView>(linker: &mut Linker<T>) -> wasmtime::Result<()> {
    let mut types = linker.instance(&format!("wasi:filesystem/types@{VERSION}"))?;
    types.resource("descriptor", ResourceType::host::<Descriptor>(), |mut store, descriptor| {
        let wasi = called(store.data_mut());
        wasi.table.delete(Resource::<Descriptor>::new_own(descriptor))?;
        wasi.descriptors = wasi.descriptors.saturating_sub(1);
        Ok(())
    })?;
    let entries = ResourceType::host::<EntryStream>();
    types.resource("directory-entry-stream", entries, |mut store, stream| {
        called(store.data_mut()).close_listing(Resource::new_own(stream))
    })?;
    link_contents(&mut types)?;
    link_metadata(&mut types)?;
    link_paths(&mut types)?;

    let mut preopens = linker.instance(&format!("wasi:filesystem/preopens@{VERSION}"))?;
    preopens.func_wrap("get-directories", |mut store, (): ()| {
        let wasi = called(store.data_mut());
        let mut directories = Vec::with_capacity(wasi.mounts.len());
        for index in 0..wasi.mounts.len() {
            let Some(mount) = wasi.mounts.get(index) else { break };
            let path = mount.preopen.guest_path.clone();
            let descriptor = mount.open().map_err(error_code);
            // A folder that was mounted and is not there (any more) is not offered.
            if let (Ok(resource),) = wasi.keep(descriptor)? {
                directories.push((resource, path));
            }
        }
        Ok((directories,))
    })
}

type This = (Resource<Descriptor>,);

fn link_contents<T: WasiView>(types: &mut LinkerInstance<'_, T>) -> wasmtime::Result<()> {
    types.func_wrap(
        "[method]descriptor.read-via-stream",
        |mut store, (this, offset): (Resource<Descriptor>, u64)| {
            let wasi = called(store.data_mut());
            let stream = wasi.descriptor(&this)?.read_via_stream(offset);
            wasi.input(stream)
        },
    )?;
    types.func_wrap(
        "[method]descriptor.write-via-stream",
        |mut store, (this, offset): (Resource<Descriptor>, u64)| {
            let wasi = called(store.data_mut());
            let stream = wasi.descriptor(&this)?.write_via_stream(Position::At(offset));
            wasi.output(stream)
        },
    )?;
    types.func_wrap("[method]descriptor.append-via-stream", |mut store, (this,): This| {
        let wasi = called(store.data_mut());
        let stream = wasi.descriptor(&this)?.write_via_stream(Position::End);
        wasi.output(stream)
    })?;
    types.func_wrap(
        "[method]descriptor.read",
        |mut store, (this, length, offset): (Resource<Descriptor>, u64, u64)| {
            let wasi = called(store.data_mut());
            let read = wasi.descriptor(&this)?.read(length, offset);
            wasi.owe(read.as_ref().map_or(0, |(bytes, _)| bytes.len() as u64), BYTE);
            Ok((read,))
        },
    )?;
    types.func_wrap(
        "[method]descriptor.write",
        |mut store, (this, bytes, offset): (Resource<Descriptor>, Vec<u8>, u64)| {
            let wasi = called(store.data_mut());
            wasi.owe(bytes.len() as u64, BYTE);
            Ok((wasi.descriptor(&this)?.write(&bytes, offset),))
        },
    )?;
    types.func_wrap(
        "[method]descriptor.set-size",
        |mut store, (this, size): (Resource<Descriptor>, u64)| {
            Ok((called(store.data_mut()).descriptor(&this)?.set_size(size),))
        },
    )?;
    types.func_wrap("[method]descriptor.read-directory", |mut store, (this,): This| {
        called(store.data_mut()).list(&this)
    })?;
    types.func_wrap(
        "[method]directory-entry-stream.read-directory-entry",
        |mut store, (this,): (Resource<EntryStream>,)| {
            let entry = called(store.data_mut()).table.get_mut(&this)?.next();
            let entry = entry.map(|entry| DirectoryEntry {
                type_: descriptor_type(entry.kind),
                name: entry.name.clone(),
            });
            Ok((Ok::<_, ErrorCode>(entry),))
        },
    )
}

fn link_metadata<T: WasiView>(types: &mut LinkerInstance<'_, T>) -> wasmtime::Result<()> {
    type Times = (Resource<Descriptor>, NewTimestamp, NewTimestamp);
    types.func_wrap(
        "[method]descriptor.advise",
        |mut store, (this, _, _, _): (Resource<Descriptor>, u64, u64, Advice)| {
            Ok((called(store.data_mut()).descriptor(&this)?.advise(),))
        },
    )?;
    for name in ["[method]descriptor.sync", "[method]descriptor.sync-data"] {
        types.func_wrap(name, |mut store, (this,): This| {
            Ok((called(store.data_mut()).descriptor(&this)?.sync(),))
        })?;
    }
    types.func_wrap("[method]descriptor.get-flags", |mut store, (this,): This| {
        let flags = called(store.data_mut()).descriptor(&this)?.flags();
        Ok((Ok::<DescriptorFlags, ErrorCode>(flags),))
    })?;
    types.func_wrap("[method]descriptor.get-type", |mut store, (this,): This| {
        Ok((called(store.data_mut()).descriptor(&this)?.descriptor_type(),))
    })?;
    types.func_wrap("[method]descriptor.stat", |mut store, (this,): This| {
        Ok((called(store.data_mut()).descriptor(&this)?.stat(),))
    })?;
    types.func_wrap(
        "[method]descriptor.set-times",
        |mut store, (this, accessed, modified): Times| {
            let wasi = called(store.data_mut());
            wasi.clock.read()?;
            let now = wasi.clock.wall();
            Ok((wasi.descriptor(&this)?.set_times(accessed, modified, now),))
        },
    )?;
    types.func_wrap(
        "[method]descriptor.is-same-object",
        |mut store, (this, other): (Resource<Descriptor>, Resource<Descriptor>)| {
            let wasi = called(store.data_mut());
            Ok((wasi.descriptor(&this)?.is_same_object(wasi.descriptor(&other)?),))
        },
    )?;
    types.func_wrap("[method]descriptor.metadata-hash", |mut store, (this,): This| {
        Ok((called(store.data_mut()).descriptor(&this)?.metadata_hash(),))
    })?;
    types.func_wrap("filesystem-error-code", |mut store, (error,): (Resource<Error>,)| {
        let error = called(store.data_mut()).table.get(&error)?;
        Ok((error.downcast_ref::<FileError>().map(|error| error_code(*error)),))
    })
}

fn link_paths<T: WasiView>(types: &mut LinkerInstance<'_, T>) -> wasmtime::Result<()> {
    type Path = (Resource<Descriptor>, String);
    type FlagsPath = (Resource<Descriptor>, PathFlags, String);
    types.func_wrap(
        "[method]descriptor.open-at",
        |mut store,
         (this, path_flags, path, open_flags, flags): (
            Resource<Descriptor>,
            PathFlags,
            String,
            OpenFlags,
            DescriptorFlags,
        )| {
            let wasi = called(store.data_mut());
            let (opened,) = wasi.at(&this, &path, |directory, path| {
                directory.open_at(path_flags, path, open_flags, flags)
            })?;
            wasi.keep(opened)
        },
    )?;
    types.func_wrap(
        "[method]descriptor.stat-at",
        |mut store, (this, flags, path): FlagsPath| {
            called(store.data_mut())
                .at(&this, &path, |directory, path| directory.stat_at(flags, path))
        },
    )?;
    types.func_wrap(
        "[method]descriptor.metadata-hash-at",
        |mut store, (this, flags, path): FlagsPath| {
            let wasi = called(store.data_mut());
            wasi.at(&this, &path, |directory, path| directory.metadata_hash_at(flags, path))
        },
    )?;
    types.func_wrap(
        "[method]descriptor.set-times-at",
        |mut store,
         (this, flags, path, accessed, modified): (
            Resource<Descriptor>,
            PathFlags,
            String,
            NewTimestamp,
            NewTimestamp,
        )| {
            let wasi = called(store.data_mut());
            wasi.clock.read()?;
            let now = wasi.clock.wall();
            wasi.at(&this, &path, |directory, path| {
                directory.set_times_at(flags, path, accessed, modified, now)
            })
        },
    )?;
    types.func_wrap(
        "[method]descriptor.create-directory-at",
        |mut store, (this, path): Path| {
            called(store.data_mut()).at(&this, &path, Descriptor::create_directory_at)
        },
    )?;
    types.func_wrap(
        "[method]descriptor.remove-directory-at",
        |mut store, (this, path): Path| {
            called(store.data_mut()).at(&this, &path, Descriptor::remove_directory_at)
        },
    )?;
    types.func_wrap("[method]descriptor.unlink-file-at", |mut store, (this, path): Path| {
        called(store.data_mut()).at(&this, &path, Descriptor::unlink_file_at)
    })?;
    types.func_wrap("[method]descriptor.readlink-at", |mut store, (this, path): Path| {
        called(store.data_mut()).at(&this, &path, Descriptor::read_link_at)
    })?;
    types.func_wrap(
        "[method]descriptor.symlink-at",
        |mut store, (this, target, path): (Resource<Descriptor>, String, String)| {
            let wasi = called(store.data_mut());
            let both = ((&this, target.as_str()), (&this, path.as_str()));
            wasi.at_both(both.0, both.1, |directory, target, _, path| {
                directory.symlink_at(target, path)
            })
        },
    )?;
    types.func_wrap(
        "[method]descriptor.link-at",
        |mut store,
         (this, flags, path, other, other_path): (
            Resource<Descriptor>,
            PathFlags,
            String,
            Resource<Descriptor>,
            String,
        )| {
            let wasi = called(store.data_mut());
            wasi.at_both((&this, &path), (&other, &other_path), |from, path, to, to_path| {
                from.link_at(flags, path, to, to_path)
            })
        },
    )?;
    types.func_wrap(
        "[method]descriptor.rename-at",
        |mut store,
         (this, path, other, other_path): (
            Resource<Descriptor>,
            String,
            Resource<Descriptor>,
            String,
        )| {
            let wasi = called(store.data_mut());
            wasi.at_both((&this, &path), (&other, &other_path), Descriptor::rename_at)
        },
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fulgurite_trace::file::{self, FileKind, FileStat, FileTree, Handle, OpenMode};

    use super::*;
    use crate::wasi::{Preopen, WasiConfig, WasiLimits};

    type Answered<T> = Result<T, FileError>;

    /// One folder with as many long names, in which nothing can be done but list them.
    struct Wide(usize);

    impl FileTree for Wide {
        fn root(&self) -> Answered<Handle> {
            Ok(Handle(1))
        }

        fn open(&self, _: Handle, _: &str, _: OpenMode) -> Answered<Handle> {
            Err(FileError::Unsupported)
        }

        fn close(&self, _: Handle) {}

        fn stat(&self, _: Handle) -> Answered<FileStat> {
            Err(FileError::Unsupported)
        }

        fn stat_at(&self, _: Handle, _: &str, _: bool) -> Answered<FileStat> {
            Err(FileError::Unsupported)
        }

        fn read(&self, _: Handle, _: u64, _: u64) -> Answered<Vec<u8>> {
            Err(FileError::Unsupported)
        }

        fn write(&self, _: Handle, _: u64, _: &[u8]) -> Answered<()> {
            Err(FileError::Unsupported)
        }

        fn append(&self, _: Handle, _: &[u8]) -> Answered<u64> {
            Err(FileError::Unsupported)
        }

        fn set_size(&self, _: Handle, _: u64) -> Answered<()> {
            Err(FileError::Unsupported)
        }

        fn set_times(&self, _: Handle, _: Option<u64>, _: Option<u64>) -> Answered<()> {
            Err(FileError::Unsupported)
        }

        fn read_directory(&self, _: Handle) -> Answered<Arc<[file::DirectoryEntry]>> {
            let entry = |number: usize| file::DirectoryEntry {
                name: format!("{number:0>255}"),
                kind: FileKind::File,
            };
            Ok((0..self.0).map(entry).collect())
        }

        fn create_directory(&self, _: Handle, _: &str) -> Answered<()> {
            Err(FileError::Unsupported)
        }

        fn remove_directory(&self, _: Handle, _: &str) -> Answered<()> {
            Err(FileError::Unsupported)
        }

        fn unlink(&self, _: Handle, _: &str) -> Answered<()> {
            Err(FileError::Unsupported)
        }

        fn rename(&self, _: Handle, _: &str, _: Handle, _: &str) -> Answered<()> {
            Err(FileError::Unsupported)
        }

        fn symlink(&self, _: &str, _: Handle, _: &str) -> Answered<()> {
            Err(FileError::Unsupported)
        }

        fn link(&self, _: Handle, _: &str, _: Handle, _: &str) -> Answered<()> {
            Err(FileError::Unsupported)
        }

        fn read_link(&self, _: Handle, _: &str) -> Answered<String> {
            Err(FileError::Unsupported)
        }
    }

    /// A guest that holds the folder open.
    fn guest(names: usize, limits: WasiLimits) -> (WasiState, Resource<Descriptor>) {
        let preopens = vec![Preopen::new("/", Arc::new(Wide(names)))];
        let mut guest = WasiState::new(WasiConfig { preopens, limits, ..WasiConfig::default() });
        let folder = guest.mounts[0].open().map_err(error_code);
        let (folder,) = guest.keep(folder).unwrap();
        (guest, folder.unwrap())
    }

    #[test]
    fn open_listings_take_a_bounded_part_of_the_hosts_memory() {
        let (mut guest, folder) = guest(20_000, WasiLimits::default());
        let mut open = Vec::new();
        let refused = loop {
            match guest.list(&folder).unwrap().0 {
                Ok(listing) => open.push(listing),
                Err(error) => break error,
            }
            assert!(open.len() < 10, "listings without end");
        };
        assert!(matches!(refused, ErrorCode::Quota), "{refused:?}");
        assert!(!open.is_empty() && guest.listed <= guest.limits.listing_bytes);
        guest.close_listing(open.pop().unwrap()).unwrap();
        open.push(guest.list(&folder).unwrap().0.unwrap());
        for listing in open {
            guest.close_listing(listing).unwrap();
        }
        assert_eq!(guest.listed, 0);
    }

    #[test]
    fn any_folder_can_be_listed_by_a_guest_that_lists_nothing_else() {
        let limits = WasiLimits { listing_bytes: 1, ..WasiLimits::default() };
        let (mut guest, folder) = guest(10, limits);
        let listing = guest.list(&folder).unwrap().0.unwrap();
        assert!(guest.list(&folder).unwrap().0.is_err());
        guest.close_listing(listing).unwrap();
        assert!(guest.list(&folder).unwrap().0.is_ok());
    }

    #[test]
    fn names_that_are_listed_and_looked_up_cost_fuel() {
        let (mut guest, folder) = guest(500, WasiLimits::default());
        guest.list(&folder).unwrap().0.unwrap();
        assert_eq!(guest.owed, 500 * NAME);
        guest.owed = 0;
        guest.at(&folder, "one/two", |_, _| Ok(())).unwrap().0.unwrap();
        assert_eq!(guest.owed, 2 * NAME + 7 * BYTE);
        guest.owed = 0;
        guest.at_both((&folder, "one"), (&folder, "two"), |_, _, _, _| Ok(())).unwrap().0.unwrap();
        assert_eq!(guest.owed, 2 * NAME + 6 * BYTE);
    }
}
