//! Sockets that are there to be linked against and never work.
//!
//! The few functions that can be called without holding a socket answer `access-denied`, where
//! their type allows it, and are counted. The methods of sockets cannot be reached, as there never
//! is a socket; they are linked by name alone and would end the guest with [`Denied`].

use wasmtime::component::{Linker, LinkerInstance, Resource, ResourceType};
use wasmtime_wasi::p2::bindings::sockets::network::{ErrorCode, IpAddressFamily};
use wasmtime_wasi_io::streams::Error;

use super::{WasiView, fuel::called};

/// The guest used an import that it was not given.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the guest called {call}, which it was not given")]
pub struct Denied {
    /// Interface and function.
    pub call: String,
}

/// The token that stands for the network; it opens nothing.
struct Network;
enum ResolveAddressStream {}
enum TcpSocket {}
enum UdpSocket {}
enum IncomingDatagramStream {}
enum OutgoingDatagramStream {}

const TCP_METHODS: &[&str] = &[
    "start-bind",
    "finish-bind",
    "start-connect",
    "finish-connect",
    "start-listen",
    "finish-listen",
    "accept",
    "local-address",
    "remote-address",
    "is-listening",
    "address-family",
    "set-listen-backlog-size",
    "keep-alive-enabled",
    "set-keep-alive-enabled",
    "keep-alive-idle-time",
    "set-keep-alive-idle-time",
    "keep-alive-interval",
    "set-keep-alive-interval",
    "keep-alive-count",
    "set-keep-alive-count",
    "hop-limit",
    "set-hop-limit",
    "receive-buffer-size",
    "set-receive-buffer-size",
    "send-buffer-size",
    "set-send-buffer-size",
    "subscribe",
    "shutdown",
];

const UDP_METHODS: &[&str] = &[
    "start-bind",
    "finish-bind",
    "stream",
    "local-address",
    "remote-address",
    "address-family",
    "unicast-hop-limit",
    "set-unicast-hop-limit",
    "receive-buffer-size",
    "set-receive-buffer-size",
    "send-buffer-size",
    "set-send-buffer-size",
    "subscribe",
];

/// Links `resource` with `methods` that can never be called.
fn unreachable_resource<T: WasiView, R: 'static>(
    instance: &mut LinkerInstance<'_, T>,
    resource: &'static str,
    methods: &[&str],
) -> wasmtime::Result<()> {
    instance.resource(resource, ResourceType::host::<R>(), |_, _| Ok(()))?;
    for method in methods {
        let name = format!("[method]{resource}.{method}");
        let denied = Denied { call: format!("wasi:sockets {resource}.{method}") };
        instance.func_new(&name, move |mut store, _, _, _| {
            called(store.data_mut()).deny(resource);
            Err(denied.clone().into())
        })?;
    }
    Ok(())
}

pub(super) fn add_to_linker<T: WasiView>(linker: &mut Linker<T>) -> wasmtime::Result<()> {
    let name = |interface| format!("wasi:sockets/{interface}@{}", super::VERSION);

    let mut network = linker.instance(&name("network"))?;
    network.resource("network", ResourceType::host::<Network>(), |mut store, token| {
        called(store.data_mut()).table.delete(Resource::<Network>::new_own(token))?;
        Ok(())
    })?;
    network.func_wrap("network-error-code", |_, (_error,): (Resource<Error>,)| {
        Ok((None::<ErrorCode>,))
    })?;

    let mut instance_network = linker.instance(&name("instance-network"))?;
    instance_network.func_wrap("instance-network", |mut store, (): ()| {
        Ok((called(store.data_mut()).table.push(Network)?,))
    })?;

    let mut lookup = linker.instance(&name("ip-name-lookup"))?;
    unreachable_resource::<T, ResolveAddressStream>(
        &mut lookup,
        "resolve-address-stream",
        &["resolve-next-address", "subscribe"],
    )?;
    lookup.func_wrap(
        "resolve-addresses",
        |mut store, (_network, _name): (Resource<Network>, String)| {
            called(store.data_mut()).deny("wasi:sockets/ip-name-lookup.resolve-addresses");
            Ok((Err::<Resource<ResolveAddressStream>, _>(ErrorCode::AccessDenied),))
        },
    )?;

    let mut tcp = linker.instance(&name("tcp"))?;
    unreachable_resource::<T, TcpSocket>(&mut tcp, "tcp-socket", TCP_METHODS)?;
    let mut tcp_create = linker.instance(&name("tcp-create-socket"))?;
    tcp_create.func_wrap("create-tcp-socket", |mut store, (_family,): (IpAddressFamily,)| {
        called(store.data_mut()).deny("wasi:sockets/tcp-create-socket.create-tcp-socket");
        Ok((Err::<Resource<TcpSocket>, _>(ErrorCode::AccessDenied),))
    })?;

    let mut udp = linker.instance(&name("udp"))?;
    unreachable_resource::<T, UdpSocket>(&mut udp, "udp-socket", UDP_METHODS)?;
    unreachable_resource::<T, IncomingDatagramStream>(
        &mut udp,
        "incoming-datagram-stream",
        &["receive", "subscribe"],
    )?;
    unreachable_resource::<T, OutgoingDatagramStream>(
        &mut udp,
        "outgoing-datagram-stream",
        &["check-send", "send", "subscribe"],
    )?;
    let mut udp_create = linker.instance(&name("udp-create-socket"))?;
    udp_create.func_wrap("create-udp-socket", |mut store, (_family,): (IpAddressFamily,)| {
        called(store.data_mut()).deny("wasi:sockets/udp-create-socket.create-udp-socket");
        Ok((Err::<Resource<UdpSocket>, _>(ErrorCode::AccessDenied),))
    })?;
    Ok(())
}
