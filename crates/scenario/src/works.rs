//! The work of a scenario on this machine: every combination of numbers is one.

use crate::file::mix_of;
use crate::machine::Scale;
use crate::model::{Item, Scenario, Timing, Work};
use keyway_load::{
    Command, CommandKind, Error as LoadError, KeyForm, Keys, Plan, Sizes, Until, Workload,
    parse_mix, parse_template, suite,
};
use keyway_report::Scalar;
use std::collections::BTreeMap;
use std::time::Duration;

/// One row of the table for each system.
#[derive(Clone, Debug)]
pub struct Task {
    pub item: keyway_report::Item,
    pub kind: TaskKind,
    /// Systems that cannot do it, each with the reason.
    pub leaves_out: Vec<(String, String)>,
}

impl Task {
    /// Returns whether a system can do it.
    pub fn is_for(&self, system: &str) -> bool {
        self.leaves_out.iter().all(|(name, _)| name != system)
    }
}

/// What is done.
#[derive(Clone, Debug)]
pub enum TaskKind {
    Load { workload: Box<Workload>, plan: Box<Plan>, is_filled: bool },
    Messages { sizes: keyway_bus_bench::Sizes, senders: usize },
}

/// All works, and what was left out because of the machine.
///
/// # Errors
/// When the load generator cannot do one of them.
pub fn tasks(
    scenario: &Scenario,
    scale: Scale,
    timing: Timing,
) -> Result<(Vec<Task>, Vec<String>), LoadError> {
    let (mut tasks, mut notes) = (Vec::new(), Vec::new());
    for item in &scenario.items {
        let mut threads: Vec<u64> = item.threads.iter().map(|one| one.on(scale)).collect();
        if !scale.is_full && threads.len() > 1 {
            let fits = |threads: &u64| *threads <= scale.cores;
            let left_out: Vec<String> =
                threads.iter().filter(|one| !fits(one)).map(u64::to_string).collect();
            if !left_out.is_empty() {
                let cores = scale.cores;
                let all = left_out.join(", ");
                let note = format!(
                    "Left out without --full: {all} threads of load, more than {cores} cores."
                );
                if !notes.contains(&note) {
                    notes.push(note);
                }
            }
            threads.retain(fits);
        }
        for shape in shapes(item, &threads, scale) {
            let task = task(item, &shape, scale, timing)?;
            // On small machines two numbers may be one.
            if tasks.iter().all(|one: &Task| one.item.id != task.item.id) {
                tasks.push(task);
            }
        }
    }
    Ok((tasks, notes))
}

/// The numbers of one work.
struct Shape<'i> {
    threads: u64,
    connections: u64,
    sizes: &'i Sizes,
    read_write: Option<(u32, u32)>,
}

fn shapes<'i>(item: &'i Item, threads: &[u64], scale: Scale) -> Vec<Shape<'i>> {
    let ratios: Vec<Option<(u32, u32)>> = match &item.work {
        Work::ReadWrite(ratios) => ratios.iter().copied().map(Some).collect(),
        _ => vec![None],
    };
    let mut shapes = Vec::new();
    for &read_write in &ratios {
        for sizes in &item.sizes {
            for &threads in threads {
                for connections in &item.connections {
                    let connections = connections.on(scale);
                    shapes.push(Shape { threads, connections, sizes, read_write });
                }
            }
        }
    }
    shapes
}

fn task(item: &Item, shape: &Shape, scale: Scale, timing: Timing) -> Result<Task, LoadError> {
    let mut id = item.id.clone();
    let mut parameters = BTreeMap::new();
    let mut number = |name: &str, value: u64| {
        parameters.insert(name.to_owned(), Scalar::Number(value as f64));
    };
    if let Some(nodes) = item.nodes {
        number("nodes", nodes);
    }
    let kind = match &item.work {
        Work::Messages { sizes, senders } => {
            number("connections", *senders as u64);
            parameters.insert("packet_len".to_owned(), Scalar::Text(format!("{sizes} B")));
            TaskKind::Messages { sizes: *sizes, senders: *senders }
        }
        _ => {
            number("threads", shape.threads);
            number("connections", shape.threads * shape.connections);
            number("pipeline", item.pipeline);
            if let Sizes::Fixed(len) = shape.sizes {
                number("value_bytes", (*len).into());
            }
            if let Some((reads, writes)) = shape.read_write {
                let ratio = format!("{reads}:{writes}");
                id.push_str(&format!("-r{ratio}"));
                parameters.insert("read_write".to_owned(), Scalar::Text(ratio));
            }
            if item.sizes.len() > 1 {
                id.push_str(&format!("-s{}", shape.sizes.longest()));
            }
            if item.threads.len() > 1 {
                id.push_str(&format!("-t{}", shape.threads));
            }
            if item.connections.len() > 1 {
                id.push_str(&format!("-c{}", shape.connections));
            }
            let workload = workload(item, shape, scale)?;
            if item.title.is_empty() {
                let text = Scalar::Text(workload.name.clone());
                parameters.insert("command".to_owned(), text);
            }
            TaskKind::Load {
                workload: Box::new(workload),
                plan: Box::new(plan(item, shape, timing)),
                is_filled: item.is_filled,
            }
        }
    };
    let (title, group) = (item.title.clone(), item.group.clone());
    let item_of_report = keyway_report::Item { id, title, group, parameters };
    Ok(Task { item: item_of_report, kind, leaves_out: item.leaves_out.clone() })
}

fn workload(item: &Item, shape: &Shape, scale: Scale) -> Result<Workload, LoadError> {
    let keys = item.keys.on(scale).max(1);
    let mut workload = match &item.work {
        Work::Mix(mix) => Workload::new(mix, parse_mix(mix)?),
        Work::ReadWrite(_) => {
            let ratio = shape.read_write.unwrap_or((1, 1));
            Workload::new(&format!("get:set {}:{}", ratio.0, ratio.1), mix_of(ratio))
        }
        Work::Template(text) => {
            let words = parse_template(text).map_err(|why| LoadError::Asked(why.to_string()))?;
            let name = text.split_whitespace().next().unwrap_or_default().to_lowercase();
            Workload::new(text, vec![(Command { name, kind: CommandKind::Words(words) }, 1)])
        }
        Work::Suite(test) => {
            let mut all = suite(std::slice::from_ref(test), keys, shape.sizes.longest())?;
            all.pop().ok_or_else(|| LoadError::Asked(format!("{test} is no test")))?
        }
        Work::Messages { .. } => return Err(LoadError::Asked("messages are no load".to_owned())),
    };
    // Values of several lengths lie beside each other.
    let prefix = match item.sizes.len() {
        0 | 1 => item.key_prefix.clone(),
        _ => format!("{}{}:", item.key_prefix, shape.sizes.longest()),
    };
    let form = KeyForm::Digits(item.key_digits);
    workload.keys = Keys { prefix, first: 0, count: keys, form };
    (workload.write_pattern, workload.read_pattern) = (item.pattern, item.pattern);
    workload.sizes = shape.sizes.clone();
    let seconds = item.expiry.map(|seconds| seconds.min(u32::MAX.into()) as u32);
    workload.expiry = seconds.map(|seconds| (seconds, seconds));
    workload.check()?;
    Ok(workload)
}

fn plan(item: &Item, shape: &Shape, timing: Timing) -> Plan {
    Plan {
        threads: shape.threads.max(1) as usize,
        connections: shape.connections.max(1) as usize,
        pipeline: item.pipeline as usize,
        until: Until::Time(Duration::from_secs_f64(timing.seconds)),
        // What is short begins shortly.
        warm_up: Duration::from_secs_f64(timing.warm_up.min(timing.seconds / 4.0)),
        calls: item.calls,
        ..Plan::default()
    }
}
