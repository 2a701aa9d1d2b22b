//! Addresses of the network, as they lie in memory.

use alloc::sync::Arc;

use crate::layout::Pack;

/// The family of addresses of four bytes.
pub const INET: u16 = 2;
/// Of sixteen.
pub const INET6: u16 = 10;

/// What stands before an address of four bytes where one of sixteen is meant.
pub const MAPPED: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];

/// The port of an address of the network.
pub fn port_in(address: &[u8]) -> u16 {
    u16::from_be_bytes([address[2], address[3]])
}

/// The family of an address, and its bytes: of one that stands in a longer one, its own.
pub fn host_of(address: &[u8]) -> (u16, &[u8]) {
    match u16::from_le_bytes([address[0], address[1]]) {
        INET => (INET, address.get(4..8).unwrap_or_default()),
        _ if address.get(8..20) == Some(&MAPPED) => (INET, address.get(20..24).unwrap_or_default()),
        _ => (INET6, address.get(8..24).unwrap_or_default()),
    }
}

/// Whether an address is that of all of this machine.
pub fn is_any(host: &[u8]) -> bool {
    host.iter().all(|&byte| byte == 0)
}

/// Whether two addresses can be of one socket: the one as another knows it, the other as it has it itself.
pub fn is_same(known: &[u8], own: &[u8]) -> bool {
    if known.len() < 16 || own.len() < 16 {
        return known == own;
    }
    let (one, other) = (host_of(known), host_of(own));
    port_in(known) == port_in(own) && (one == other || is_any(one.1) || is_any(other.1))
}

/// An address as a socket of this family has it: one of four bytes stands in one of sixteen, and the other way round.
pub fn as_seen(family: u16, address: &Arc<[u8]>) -> Arc<[u8]> {
    match (family, address.len()) {
        (INET6, 16) => {
            let head = Pack::default().half(INET6).half(port_in(address).to_be()).word(0);
            Arc::from([&head.0[..], &MAPPED, &address[4..8], &[0; 4]].concat())
        }
        (INET, 28) => {
            let host = if address[8..20] == MAPPED {
                [address[20], address[21], address[22], address[23]]
            } else {
                [127, 0, 0, 1]
            };
            let head = Pack::default().half(INET).half(port_in(address).to_be());
            Arc::from([&head.0[..], &host, &[0; 8]].concat())
        }
        _ => address.clone(),
    }
}
