//! `wasi:io/streams`: what wasmtime makes of the streams of this room, and what their bytes cost.

use wasmtime::component::Resource;
use wasmtime_wasi_io::{
    bindings::wasi::io::streams::{self, HostInputStream, HostOutputStream},
    poll::DynPollable,
    streams::{DynInputStream, DynOutputStream, StreamError, StreamResult},
};

use super::{fuel::BYTE, state::WasiState};

impl WasiState {
    fn owe_bytes(&mut self, bytes: &[u8]) {
        self.owe(bytes.len() as u64, BYTE);
    }
}

impl streams::Host for WasiState {
    fn convert_stream_error(
        &mut self,
        error: StreamError,
    ) -> wasmtime::Result<streams::StreamError> {
        streams::Host::convert_stream_error(&mut self.table, error)
    }
}

impl HostInputStream for WasiState {
    fn read(&mut self, stream: Resource<DynInputStream>, length: u64) -> StreamResult<Vec<u8>> {
        let bytes = HostInputStream::read(&mut self.table, stream, length)?;
        self.owe_bytes(&bytes);
        Ok(bytes)
    }

    async fn blocking_read(
        &mut self,
        stream: Resource<DynInputStream>,
        length: u64,
    ) -> StreamResult<Vec<u8>> {
        let bytes = HostInputStream::blocking_read(&mut self.table, stream, length).await?;
        self.owe_bytes(&bytes);
        Ok(bytes)
    }

    fn skip(&mut self, stream: Resource<DynInputStream>, length: u64) -> StreamResult<u64> {
        let skipped = HostInputStream::skip(&mut self.table, stream, length)?;
        self.owe(skipped, BYTE);
        Ok(skipped)
    }

    async fn blocking_skip(
        &mut self,
        stream: Resource<DynInputStream>,
        length: u64,
    ) -> StreamResult<u64> {
        let skipped = HostInputStream::blocking_skip(&mut self.table, stream, length).await?;
        self.owe(skipped, BYTE);
        Ok(skipped)
    }

    fn subscribe(
        &mut self,
        stream: Resource<DynInputStream>,
    ) -> wasmtime::Result<Resource<DynPollable>> {
        HostInputStream::subscribe(&mut self.table, stream)
    }

    async fn drop(&mut self, stream: Resource<DynInputStream>) -> wasmtime::Result<()> {
        HostInputStream::drop(&mut self.table, stream).await
    }
}

impl HostOutputStream for WasiState {
    fn check_write(&mut self, stream: Resource<DynOutputStream>) -> StreamResult<u64> {
        HostOutputStream::check_write(&mut self.table, stream)
    }

    fn write(&mut self, stream: Resource<DynOutputStream>, bytes: Vec<u8>) -> StreamResult<()> {
        self.owe_bytes(&bytes);
        HostOutputStream::write(&mut self.table, stream, bytes)
    }

    async fn blocking_write_and_flush(
        &mut self,
        stream: Resource<DynOutputStream>,
        bytes: Vec<u8>,
    ) -> StreamResult<()> {
        self.owe_bytes(&bytes);
        HostOutputStream::blocking_write_and_flush(&mut self.table, stream, bytes).await
    }

    fn flush(&mut self, stream: Resource<DynOutputStream>) -> StreamResult<()> {
        HostOutputStream::flush(&mut self.table, stream)
    }

    async fn blocking_flush(&mut self, stream: Resource<DynOutputStream>) -> StreamResult<()> {
        HostOutputStream::blocking_flush(&mut self.table, stream).await
    }

    fn write_zeroes(&mut self, stream: Resource<DynOutputStream>, length: u64) -> StreamResult<()> {
        HostOutputStream::write_zeroes(&mut self.table, stream, length)?;
        self.owe(length, BYTE);
        Ok(())
    }

    async fn blocking_write_zeroes_and_flush(
        &mut self,
        stream: Resource<DynOutputStream>,
        length: u64,
    ) -> StreamResult<()> {
        HostOutputStream::blocking_write_zeroes_and_flush(&mut self.table, stream, length).await?;
        self.owe(length, BYTE);
        Ok(())
    }

    fn splice(
        &mut self,
        output: Resource<DynOutputStream>,
        input: Resource<DynInputStream>,
        length: u64,
    ) -> StreamResult<u64> {
        let moved = HostOutputStream::splice(&mut self.table, output, input, length)?;
        self.owe(moved, BYTE);
        Ok(moved)
    }

    async fn blocking_splice(
        &mut self,
        output: Resource<DynOutputStream>,
        input: Resource<DynInputStream>,
        length: u64,
    ) -> StreamResult<u64> {
        let splice = HostOutputStream::blocking_splice(&mut self.table, output, input, length);
        let moved = splice.await?;
        self.owe(moved, BYTE);
        Ok(moved)
    }

    fn subscribe(
        &mut self,
        stream: Resource<DynOutputStream>,
    ) -> wasmtime::Result<Resource<DynPollable>> {
        HostOutputStream::subscribe(&mut self.table, stream)
    }

    async fn drop(&mut self, stream: Resource<DynOutputStream>) -> wasmtime::Result<()> {
        HostOutputStream::drop(&mut self.table, stream).await
    }
}
