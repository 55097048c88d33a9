//! Imports a part of WASI sockets, as Python components do, and tries to use it: every call must
//! be denied and recorded.

use fulgurite_sdk::harness::*;

mod bindings {
    #![allow(missing_docs)]
    // Not 0.2.0: with some toolchains the C library describes that version in full, and a part of
    // it cannot be merged with the whole. The host serves every 0.2.
    wit_bindgen::generate!({
        inline: "
            package wasi:sockets@0.2.1;
            interface network {
                resource network;
                enum error-code {
                    unknown, access-denied, not-supported, invalid-argument, out-of-memory,
                    timeout, concurrency-conflict, not-in-progress, would-block, invalid-state,
                    new-socket-limit, address-not-bindable, address-in-use, remote-unreachable,
                    connection-refused, connection-reset, connection-aborted, datagram-too-large,
                    name-unresolvable, temporary-resolver-failure, permanent-resolver-failure,
                }
                enum ip-address-family { ipv4, ipv6 }
            }
            interface instance-network {
                use network.{network};
                instance-network: func() -> network;
            }
            interface tcp {
                resource tcp-socket;
            }
            interface tcp-create-socket {
                use network.{error-code, ip-address-family};
                use tcp.{tcp-socket};
                create-tcp-socket: func(address-family: ip-address-family)
                    -> result<tcp-socket, error-code>;
            }
            world guest {
                import instance-network;
                import tcp-create-socket;
            }
        ",
        generate_all,
    });
}

use bindings::wasi::sockets::network::IpAddressFamily;
use bindings::wasi::sockets::tcp_create_socket::create_tcp_socket;

struct Sockets;

impl Harness for Sockets {
    type Config = NoConfig;

    fn describe() -> Description {
        Description::new("sockets", env!("CARGO_PKG_VERSION"))
    }

    fn run(_: Episode<NoConfig>) -> Result<Outcome, Failure> {
        Ok(match create_tcp_socket(IpAddressFamily::Ipv4) {
            Ok(_) => Outcome::submitted("got a socket"),
            Err(code) => Outcome::gave_up(format!("{code:?}")),
        })
    }
}

fulgurite_sdk::export_harness!(Sockets);
