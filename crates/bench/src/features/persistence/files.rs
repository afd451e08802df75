//! Loading and saving of files.

use std::time::Duration;

use keyway_load::{Flow, Pace, Plan, Until};

use super::{PATIENCE, ask, end, folder, redis, store, told};
use crate::clock;
use crate::error::Error;
use crate::features::{cpu_of, shown};
use crate::load::{Dataset, Served, Work, plan};
use crate::options::Options;
use crate::session::Session;
use crate::systems::System;

/// Number of clients beside which items are saved, and their requests per second.
const CLIENTS: usize = 16;
const RATE: f64 = 20_000.0;
/// How long their latency is measured before the items are saved.
const BEFORE: Duration = Duration::from_secs(4);
/// Time between two looks at whether the items are still being saved.
const LOOK: Duration = Duration::from_millis(50);

/// The seconds that pass and those of the processor for loading, and for saving.
#[derive(Default)]
struct Seconds {
    load: [Vec<f64>; 2],
    save: [Vec<f64>; 2],
    /// The p99 of clients before the data is saved and meanwhile, in milliseconds.
    p99: [Vec<f64>; 2],
}

pub(super) fn measure(session: &Session, options: &Options) -> Result<String, Error> {
    let directory = folder(session, "items")?;
    let file = directory.join("dump.rdb");
    let first = redis(session, &directory, &[])?;
    first.served.fill(Dataset::strings("itm:", options.items, 64))?;
    ask(&first.served, "SAVE", PATIENCE)?;
    end(first)?;
    let names = ["redis-server", "keyway store"];
    let mut all = [Seconds::default(), Seconds::default()];
    for round in 0..options.rounds {
        for at in [round % 2, (round + 1) % 2] {
            // Each has a copy: saving replaces it.
            let own = folder(session, &format!("items-{}", names[at].replace(' ', "-")))?;
            std::fs::copy(&file, own.join("dump.rdb")).map_err(Error::io("a copy of the file"))?;
            let begun = clock::now();
            let system = match at {
                0 => redis(session, &own, &[])?,
                _ => store(
                    session,
                    &format!(
                        "snapshot = {{ file = {:?}, every = \"off\", \
                    on_shutdown = false }}\n",
                        own.join("dump.rdb").display().to_string()
                    ),
                )?,
            };
            await_items(&system, options.items)?;
            note(&mut all[at].load, clock::now() - begun, cpu_of(&[system.served.pid]));
            let (begun, before) = (clock::now(), cpu_of(&[system.served.pid]));
            ask(&system.served, "SAVE", PATIENCE)?;
            let used = cpu_of(&[system.served.pid]).saturating_sub(before);
            note(&mut all[at].save, clock::now() - begun, used);
            let p99 = beside(&system.served, options)?;
            all[at].p99.iter_mut().zip(p99).for_each(|(values, value)| values.push(value));
            end(system)?;
        }
    }
    let mut text = format!(
        "{} items of a 16-byte key and a 64-byte value, in the file of a redis-server; {} rounds\n\n\
         | system | loading, s | processor, s | saving, s | processor, s |\n\
         | --- | ---: | ---: | ---: | ---: |\n",
        options.items, options.rounds
    );
    for (name, Seconds { load, save, .. }) in names.iter().zip(&all) {
        let cells: Vec<String> = load.iter().chain(save).map(|values| shown(values, 2)).collect();
        text.push_str(&format!("| {name} | {} |\n", cells.join(" | ")));
    }
    text.push_str(&format!(
        "\nSET and GET, equally often, {RATE} per second by {CLIENTS} clients, while the items are \
         saved in the background: p99 in ms\n\n\
         | system | before | meanwhile | ratio |\n| --- | ---: | ---: | ---: |\n"
    ));
    for (name, Seconds { p99: [before, meanwhile], .. }) in names.iter().zip(&all) {
        let ratios: Vec<f64> =
            meanwhile.iter().zip(before).map(|(one, other)| one / other).collect();
        let cells = [before, meanwhile, &ratios].map(|values| shown(values, 2));
        text.push_str(&format!("| {name} | {} |\n", cells.join(" | ")));
    }
    Ok(text + "\n")
}

fn note(into: &mut [Vec<f64>; 2], wall: Duration, cpu: Duration) {
    into[0].push(wall.as_secs_f64());
    into[1].push(cpu.as_secs_f64());
}

/// The p99 of clients in milliseconds, before the items are saved in the background and meanwhile.
fn beside(served: &Served, options: &Options) -> Result<[f64; 2], Error> {
    let work = Work::Mixed.on(Dataset::strings("itm:", options.items, 64));
    let paced = |until| Plan { pace: Pace::Even(RATE), ..plan(CLIENTS, 16, Until::Time(until)) };
    let before = served.load_all(&work, &paced(BEFORE))?;
    ask(served, "BGSAVE", PATIENCE)?;
    let mut looked = clock::now();
    let mut failure = None;
    let meanwhile = served.load(&work, &paced(PATIENCE), &mut |_| {
        let now = clock::now();
        if now < looked + LOOK {
            return Flow::Continue;
        }
        looked = now;
        match is_saving(served) {
            Ok(true) => Flow::Continue,
            Ok(false) => Flow::Stop,
            Err(why) => {
                failure = Some(why);
                Flow::Stop
            }
        }
    })?;
    match failure {
        Some(why) => Err(why),
        None => Ok([before.latency.p99_us / 1000.0, meanwhile.latency.p99_us / 1000.0]),
    }
}

fn is_saving(served: &Served) -> Result<bool, Error> {
    Ok(told(served, "INFO persistence", "rdb_bgsave_in_progress")? == "1")
}

/// Waits until a server that loads a file has all items.
fn await_items(system: &System, items: u32) -> Result<(), Error> {
    let expected = format!(":{items}");
    let is_there = || Ok(ask(&system.served, "DBSIZE", PATIENCE).is_ok_and(|it| it == expected));
    match clock::wait_until(PATIENCE, is_there)? {
        true => Ok(()),
        false => Err(Error::Load(format!("{} does not load its file", system.name))),
    }
}
