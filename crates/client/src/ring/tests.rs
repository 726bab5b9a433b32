//! Keys go where libmemcached sends them.

use super::*;

/// The sets of servers in `testdata/ketama.txt`, each with keys and the servers that libmemcached chose.
fn chosen_by_libmemcached() -> Vec<(Ring, Vec<(usize, &'static str)>)> {
    let mut sets: Vec<(Ring, Vec<_>)> = Vec::new();
    for line in include_str!("../../testdata/ketama.txt").lines() {
        let (first, rest) = line.split_once(' ').unwrap();
        match first {
            "servers" => {
                let servers = rest.split(' ').map(|name| match name.rsplit_once(':') {
                    Some((host, port)) => (host, port.parse().unwrap()),
                    None => (name, 0),
                });
                sets.push((Ring::new(servers), Vec::new()));
            }
            server => sets.last_mut().unwrap().1.push((server.parse().unwrap(), rest)),
        }
    }
    sets
}

#[test]
fn keys_go_to_the_servers_that_libmemcached_chooses() {
    let sets = chosen_by_libmemcached();
    assert!(sets.len() > 12);
    for (ring, keys) in &sets {
        for (server, key) in keys {
            let found = ring.servers(ring.place(key.as_bytes())).next();
            assert_eq!(found, Some(*server), "{key} of {} servers", ring.servers);
        }
    }
}

#[test]
fn every_server_follows_once() {
    let ring = Ring::new([("a", 11211), ("b", 11211), ("c", 1), ("d", 11211)]);
    for place in [0, 1 << 31, u32::MAX] {
        let mut servers: Vec<_> = ring.servers(place).collect();
        servers.sort_unstable();
        assert_eq!(servers, [0, 1, 2, 3]);
    }
}

/// The keys of a server that is left out go elsewhere; all other keys stay.
#[test]
fn a_ring_without_a_server_is_the_ring_with_that_server_skipped() {
    let names = [("a", 11211), ("b", 11211), ("c", 1), ("d", 11211)];
    let whole = Ring::new(names);
    let without = Ring::new([names[0], names[2], names[3]]);
    for n in 0..1000 {
        let key = format!("key {n}");
        let skipping = whole.servers(whole.place(key.as_bytes())).find(|server| *server != 1).unwrap();
        let alone = without.servers(without.place(key.as_bytes())).next().unwrap();
        assert_eq!(skipping, [0, 2, 3][alone], "{key}");
    }
}
