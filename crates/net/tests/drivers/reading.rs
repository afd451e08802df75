//! Bytes in both directions: drivers read, write, close and hand sockets over.

use super::*;
use keyway_base::Part;

#[test]
fn everything_arrives_once_and_in_order() {
    on_all(|seat| {
        let mut clients = seat.connected(200);
        let tokens = seat.introduced(&mut clients);
        for round in 0..20 {
            for (index, client) in clients.iter_mut().enumerate() {
                client.write_all(&pattern(50 + 37 * index, index as u8)).unwrap();
            }
            seat.until("a round", |seat| {
                let lens = tokens.iter().map(|token| seat.got.get(token).map_or(0, Vec::len));
                lens.enumerate().all(|(index, len)| len == 50 + 37 * index)
            });
            for (index, token) in tokens.iter().enumerate() {
                let got = seat.got.remove(token).unwrap();
                assert!(got == pattern(50 + 37 * index, index as u8), "round {round}, {index}");
            }
        }
        drop(clients);
        seat.until("the ends", |seat| tokens.iter().all(|token| seat.ended.contains(token)));
    });
}

#[test]
fn what_comes_while_another_is_asked_is_told() {
    on_all(|seat| {
        let mut clients = seat.connected(2);
        let tokens = seat.introduced(&mut clients);
        let len = |seat: &Seat| seat.got.get(&tokens[0]).map_or(0, Vec::len);
        for round in 0..50 {
            clients[0].write_all(b"one").unwrap();
            seat.until("the first", |seat| len(seat) == 6 * round + 3);
            clients[0].write_all(b"two").unwrap();
            // No event was reported there.
            seat.read(tokens[1], false);
            seat.until("the second", |seat| len(seat) == 6 * round + 6);
        }
    });
}

#[test]
fn a_long_stream_arrives_whole_while_others_speak() {
    on_all(|seat| {
        let mut clients = seat.connected(2);
        let tokens = seat.introduced(&mut clients);
        let long = pattern(32 << 20, 3);
        let mut other = clients.pop().unwrap();
        let mut streaming = clients.pop().unwrap();
        let sent = long.clone();
        let writer = std::thread::spawn(move || streaming.write_all(&sent).unwrap());
        let mut said = 0;
        seat.until("the stream", |seat| {
            said += 1;
            other.write_all(b"x").unwrap();
            seat.got.get(&tokens[0]).is_some_and(|got| got.len() == long.len())
        });
        writer.join().unwrap();
        assert!(seat.got[&tokens[0]] == long);
        seat.until("the others", |seat| seat.got.get(&tokens[1]).map_or(0, Vec::len) == said);
    });
}

#[test]
fn those_that_are_not_read_do_not_stop_the_others() {
    on_all(|seat| {
        let mut clients = seat.connected(12);
        let tokens = seat.introduced(&mut clients);
        seat.stubborn = tokens[..10].to_vec();
        let long = pattern(6 << 20, 9);
        let writers: Vec<_> = (0..10)
            .map(|index| {
                let (mut client, long) = (clients[index].try_clone().unwrap(), long.clone());
                std::thread::spawn(move || client.write_all(&long).unwrap())
            })
            .collect();
        for round in 1..200usize {
            clients[10].write_all(&pattern(3000, 1)).unwrap();
            clients[11].write_all(&pattern(40, 2)).unwrap();
            seat.until("others", |seat| {
                let len = |index: usize| seat.got.get(&tokens[index]).map_or(0, Vec::len);
                len(10) == 3000 * round && len(11) == 40 * round
            });
        }
        // Unread bytes stay in the system, so that the senders wait.
        assert!(writers.iter().all(|writer| !writer.is_finished()), "nothing holds them back");
        seat.stubborn.clear();
        for &token in &tokens[..10] {
            seat.read(token, false);
        }
        seat.until("what was held back", |seat| {
            tokens[..10].iter().all(|token| seat.got.get(token).map_or(0, Vec::len) == long.len())
        });
        for token in &tokens[..10] {
            assert!(seat.got[token] == long);
        }
        writers.into_iter().for_each(|writer| writer.join().unwrap());
    });
}

#[test]
fn the_end_of_one_that_is_not_read_is_told() {
    // The lengths are what the system has room for; with io_uring also more than fits into the
    // buffers.
    let lens = [
        (Kind::Epoll, 40_000),
        (Kind::Uring, 40_000),
        (Kind::Uring, 110_000),
        (Kind::ShortUring, 110_000),
    ];
    let there = kinds();
    for (kind, len) in lens.into_iter().filter(|(kind, _)| there.contains(kind)) {
        let mut seat = Seat::new(kind);
        let mut clients = seat.connected(1);
        let tokens = seat.introduced(&mut clients);
        seat.stubborn = tokens.clone();
        let mut client = clients.pop().unwrap();
        client.write_all(&pattern(len, 1)).unwrap();
        for _ in 0..20 {
            seat.turn(Duration::from_millis(1));
        }
        drop(client);
        let mut told = Vec::new();
        let since = Instant::now();
        let is_told = |event: &Event| matches!(event, Event::Ready { hangup: true, .. });
        while !told.iter().any(is_told) {
            assert!(since.elapsed() < Duration::from_secs(20), "the end is not told: {told:?}");
            seat.io.poll(Some(Duration::from_millis(50)), &mut told);
        }
        seat.read(tokens[0], true);
        seat.until("the end", |seat| seat.ended == tokens);
        assert!(seat.got[&tokens[0]] == pattern(len, 1));
    }
}

#[test]
fn who_takes_little_is_told_of_room() {
    on_all(|seat| {
        let mut clients = seat.connected(1);
        let tokens = seat.introduced(&mut clients);
        let long = pattern(24 << 20, 5);
        let mut client = clients.pop().unwrap();
        let expected = long.clone();
        let reader = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(100));
            let mut got = vec![0; expected.len()];
            client.read_exact(&mut got).unwrap();
            assert!(got == expected);
        });
        let (mut sent, mut waits) = (0, 0);
        while sent < long.len() {
            let Send::Taken(len) = seat.io.send(seat.sockets[&tokens[0]], &long[sent..]) else {
                panic!("it is there");
            };
            sent += len;
            if sent == long.len() {
                break;
            }
            waits += 1;
            let since = Instant::now();
            let mut told = Vec::new();
            let is_room = |event: &Event| matches!(event, Event::Ready { writable: true, .. });
            while !told.iter().any(is_room) {
                assert!(since.elapsed() < Duration::from_secs(20), "room is not told");
                seat.io.poll(Some(Duration::from_millis(50)), &mut told);
            }
        }
        assert!(waits > 0, "it was to wait");
        reader.join().unwrap();
    });
}

#[test]
fn a_socket_that_is_handed_over_takes_what_has_come_with_it() {
    // If one worker is refused io_uring and others have it, their drivers differ.
    let of_any = |one: Kind| kinds().into_iter().map(move |other| (one, other));
    for (kind, next) in kinds().into_iter().flat_map(of_any) {
        let (mut one, mut other) = (Seat::new(kind), Seat::new(next));
        let mut clients = one.connected(20);
        let tokens = one.introduced(&mut clients);
        for round in 0..10 {
            one.stubborn = tokens.clone();
            for (index, client) in clients.iter_mut().enumerate() {
                client.write_all(&pattern(1000, index as u8 ^ round)).unwrap();
            }
            if round % 2 == 0 {
                one.turn(Duration::from_millis(1));
            }
            for &token in &tokens {
                let socket = one.io.release(one.sockets.remove(&token).unwrap());
                let socket = other.io.adopt(socket);
                other.sockets.insert(token, socket);
                assert!(other.io.watch(socket, Token(token)));
                other.read(token, false);
            }
            other.until("what was sent", |seat| {
                tokens.iter().all(|token| seat.got.get(token).map_or(0, Vec::len) == 1000)
            });
            for (index, token) in tokens.iter().enumerate() {
                let got = other.got.remove(token).unwrap();
                assert!(got == pattern(1000, index as u8 ^ round), "{kind:?} {round} {index}");
            }
            std::mem::swap(&mut one, &mut other);
            other.stubborn.clear();
        }
    }
}

#[test]
fn what_is_closed_takes_nothing_from_who_has_its_number_next() {
    on_all(|seat| {
        for round in 0..200u32 {
            let mut clients = seat.connected(3);
            // It is closed in the turn in which it was accepted, before the driver below knows it.
            let token = *seat.sockets.last_key_value().unwrap().0;
            let socket = seat.sockets.remove(&token).unwrap();
            seat.io.close(socket);
            let mut next = TcpStream::connect(seat.at).unwrap();
            next.write_all(&round.to_be_bytes()).unwrap();
            let old = seat.sockets.clone();
            seat.until("the next", |seat| {
                seat.got.iter().any(|(token, got)| !old.contains_key(token) && got.len() == 4)
            });
            for client in &mut clients {
                let _ = client.write_all(b"late");
            }
            for (_, socket) in std::mem::take(&mut seat.sockets) {
                seat.io.close(socket);
            }
            seat.got.clear();
            seat.ended.clear();
        }
    });
}

/// A draining worker reads what is there, with or without an event, and ends.
#[test]
fn what_is_there_is_read_by_who_was_not_told() {
    on_all(|seat| {
        for round in 0..20 {
            let mut clients = seat.connected(60);
            let tokens = seat.introduced(&mut clients);
            seat.stubborn = tokens.clone();
            for (index, client) in clients.iter_mut().enumerate() {
                client.write_all(&pattern(20_000, index as u8)).unwrap();
            }
            if round % 2 == 0 {
                // Events are reported and not followed by reads: buffers become scarce.
                seat.turn(Duration::from_millis(1));
                seat.turn(Duration::ZERO);
            }
            for (index, &token) in tokens.iter().enumerate() {
                seat.read(token, true);
                assert!(seat.got[&token] == pattern(20_000, index as u8), "{round}, {index}");
            }
            for (_, socket) in std::mem::take(&mut seat.sockets) {
                seat.io.close(socket);
            }
            seat.got.clear();
            seat.stubborn.clear();
        }
    });
}

#[test]
fn closing_says_so_at_once() {
    on_all(|seat| {
        let mut clients = seat.connected(1);
        let tokens = seat.introduced(&mut clients);
        seat.io.close(seat.sockets.remove(&tokens[0]).unwrap());
        seat.turn(Duration::ZERO);
        clients[0].set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        assert_eq!(clients[0].read(&mut [0; 8]).expect("its end"), 0);
    });
}

/// A plain close would reset the connection, and bytes that the client has not read would be lost.
#[test]
fn who_is_told_that_nothing_more_comes_may_send_on() {
    on_all(|seat| {
        let mut clients = seat.connected(1);
        let token = seat.introduced(&mut clients)[0];
        let socket = seat.sockets[&token];
        let mut client = clients.pop().unwrap();
        let (last, long) = (pattern(300_000, 6), pattern(12 << 20, 7));
        let mut sent = 0;
        while sent < last.len() {
            match seat.io.send(socket, &last[sent..]) {
                Send::Taken(len) => sent += len,
                Send::Failed => panic!("it is there"),
            }
            seat.turn(Duration::from_millis(1));
        }
        let (wanted, said) = (last.clone(), long.clone());
        assert!(seat.io.finish(socket));
        let peer = std::thread::spawn(move || {
            client.write_all(&said).unwrap();
            let mut got = Vec::new();
            client.read_to_end(&mut got).expect("the end, and no reset");
            assert!(got == wanted);
        });
        seat.until("its end", |seat| seat.ended.contains(&token));
        assert!(seat.got[&token] == long);
        peer.join().unwrap();
        seat.io.close(seat.sockets.remove(&token).unwrap());
    });
}

#[test]
fn connections_that_are_made_are_read_too() {
    on_all(|seat| {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = server.local_addr().unwrap().port();
        let address = Address::Tcp { host: "127.0.0.1".to_owned(), port };
        // Tokens of links to servers look like this.
        let name = 1 << 62 | 77;
        seat.io.connect(&address, Token(name));
        let (mut peer, _) = server.accept().unwrap();
        peer.write_all(&pattern(100_000, 4)).unwrap();
        seat.until("its bytes", |seat| seat.got.get(&name).is_some_and(|got| got.len() == 100_000));
        assert!(seat.got[&name] == pattern(100_000, 4));
        assert_eq!(seat.io.send(seat.sockets[&name], b"thanks"), Send::Taken(6));
        let mut said = [0; 6];
        peer.read_exact(&mut said).unwrap();
        drop(peer);
        seat.until("its end", |seat| seat.ended == [name]);
    });
}

#[test]
fn what_is_held_of_a_read_is_not_read_over() {
    on_all(|seat| {
        let mut clients = seat.connected(1);
        let token = seat.introduced(&mut clients)[0];
        let socket = seat.sockets[&token];
        let (mut held, mut read): (Vec<Part>, _) = (Vec::new(), 0);
        for round in 0..50_u8 {
            let sent = pattern(1000, round);
            clients[0].write_all(&sent).unwrap();
            let mut got = Vec::new();
            while got.len() < sent.len() {
                seat.io.poll(Some(Duration::from_millis(50)), &mut Vec::new());
                while let Recv::Data { bytes, block, .. } = seat.io.recv(socket) {
                    got.extend_from_slice(bytes);
                    held.extend(block.and_then(|block| Part::of(block, bytes)));
                    read += bytes.len();
                }
            }
            assert!(got == sent);
        }
        let all: Vec<u8> = (0..50_u8).flat_map(|round| pattern(1000, round)).collect();
        let kept: Vec<u8> = held.iter().flat_map(|part| part.bytes().to_vec()).collect();
        assert!(read == all.len() && (kept.is_empty() || kept == all), "another read is in it");
    });
}

#[test]
fn pieces_arrive_in_their_order_as_far_as_there_is_room() {
    on_all(|seat| {
        let mut clients = seat.connected(1);
        let token = seat.introduced(&mut clients)[0];
        let socket = seat.sockets[&token];
        let wanted = pattern(9 << 20, 3);
        let mut client = clients.remove(0);
        let reader = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(100));
            let mut got = vec![0; 9 << 20];
            client.read_exact(&mut got).unwrap();
            got
        });
        let (mut at, mut was_full) = (0, false);
        while at < wanted.len() {
            let lens = [1, 40_000, 0, 16_384, 70_000, 3];
            let mut rest = &wanted[at..];
            let mut pieces = Vec::new();
            for len in lens {
                let (piece, behind) = rest.split_at(len.min(rest.len()));
                pieces.push(IoSlice::new(piece));
                rest = behind;
            }
            let all: usize = pieces.iter().map(|piece| piece.len()).sum();
            let Send::Taken(taken) = seat.io.send_pieces(socket, &pieces) else { panic!("broken") };
            at += taken;
            if taken < all {
                was_full = true;
                seat.io.poll(Some(Duration::from_millis(20)), &mut Vec::new());
            }
        }
        assert!(was_full && reader.join().unwrap() == wanted);
    });
}

#[test]
fn who_brings_much_and_then_little_is_read_whole() {
    on_all(|seat| {
        let mut clients = seat.connected(3);
        let tokens = seat.introduced(&mut clients);
        let token = tokens[0];
        let mut other = 0;
        for phase in 0..3_u8 {
            for round in 0..10 {
                let sent = pattern(300_000, phase ^ round);
                let (mut client, long) = (clients[0].try_clone().unwrap(), sent.clone());
                let writer = std::thread::spawn(move || client.write_all(&long).unwrap());
                clients[1].write_all(b"x").unwrap();
                other += 1;
                seat.until("much", |seat| {
                    let len = |token| seat.got.get(token).map_or(0, Vec::len);
                    len(&token) == sent.len() && len(&tokens[1]) == other
                });
                writer.join().unwrap();
                assert!(seat.got.remove(&token).unwrap() == sent, "{phase} {round}");
            }
            for round in 0..150 {
                clients[0].write_all(&[phase; 90]).unwrap();
                seat.until("little", |seat| seat.got.get(&token).is_some_and(|it| it.len() == 90));
                assert!(seat.got.remove(&token).unwrap() == [phase; 90], "{phase} {round}");
            }
        }
        // This is the end of a connection that has just brought many bytes.
        let mut client = clients.remove(2);
        let sent = pattern(2 << 20, 5);
        let long = sent.clone();
        std::thread::spawn(move || client.write_all(&long).unwrap());
        seat.until("its end", |seat| seat.ended == [tokens[2]]);
        assert!(seat.got[&tokens[2]] == sent);
    });
}

#[test]
fn who_brings_much_is_handed_over_whole() {
    for kind in kinds() {
        let (mut one, mut other) = (Seat::new(kind), Seat::new(kind));
        let mut clients = one.connected(2);
        let tokens = one.introduced(&mut clients);
        let sent = pattern(24 << 20, 7);
        let (mut client, long) = (clients.remove(0), sent.clone());
        let writer = std::thread::spawn(move || {
            client.write_all(&long).unwrap();
            client
        });
        let mut got = Vec::new();
        while got.len() < sent.len() {
            let wanted = sent.len().min(got.len() + (2 << 20));
            one.until("some", |seat| {
                seat.got.get(&tokens[0]).map_or(0, Vec::len) + got.len() >= wanted
            });
            got.extend(one.got.remove(&tokens[0]).unwrap());
            let socket = one.io.release(one.sockets.remove(&tokens[0]).unwrap());
            let socket = other.io.adopt(socket);
            other.sockets.insert(tokens[0], socket);
            assert!(other.io.watch(socket, Token(tokens[0])));
            other.read(tokens[0], false);
            std::mem::swap(&mut one, &mut other);
        }
        assert!(got == sent, "{kind:?}");
        let client = writer.join().unwrap();
        drop(client);
        one.until("its end", |seat| seat.ended == [tokens[0]]);
    }
}
