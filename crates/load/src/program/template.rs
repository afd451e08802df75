//! Requests whose length is known beforehand: copied as a whole, and then only what differs is
//! written into the copy. Most are such, with keys of so many digits and values of one length.

use super::write::fill_digits;
use super::{DATA_PLACES, Part, Program, Stamps, Step};
use crate::random::Random;

/// A request with zeros where its key's digits go, and what else goes where.
#[derive(Debug)]
pub(crate) struct Template {
    bytes: Vec<u8>,
    gaps: Vec<Gap>,
}

#[derive(Clone, Copy, Debug)]
struct Gap {
    from: u32,
    to: u32,
    is_key: bool,
}

impl Template {
    /// The template of a request with one key and without anything that is verified; `None` for others.
    pub(super) fn of(step: &Step) -> Option<Template> {
        let mut template = Template { bytes: Vec::new(), gaps: Vec::new() };
        for part in &step.parts {
            let (len, is_key) = match part {
                Part::Bytes { from, to } => {
                    template.bytes.extend_from_slice(&step.bytes[*from as usize..*to as usize]);
                    continue;
                }
                Part::KeyDigits { digits } => (usize::from(*digits), true),
                Part::Value { len } => (*len, false),
                _ => return None,
            };
            let from = template.bytes.len();
            template.bytes.resize(from + len, b'0');
            template.gaps.push(Gap { from: from as u32, to: (from + len) as u32, is_key });
        }
        // What is long is not worth copying twice.
        let is_short = template.bytes.len() <= MOLD_LEN_MAX;
        (is_short && step.stamps == Stamps::None).then_some(template)
    }
}

/// Values are in a template, too: they are copied once with it, and once more over it.
const MOLD_LEN_MAX: usize = 1024;

impl Program {
    /// Appends a request; the same as `render` does with its parts.
    #[inline]
    pub(crate) fn cast(
        &self,
        template: &Template,
        key: u64,
        mut random: Random,
        out: &mut Vec<u8>,
    ) {
        let start = out.len();
        out.extend_from_slice(&template.bytes);
        let own = &mut out[start..];
        for gap in &template.gaps {
            let room = &mut own[gap.from as usize..gap.to as usize];
            if gap.is_key {
                fill_digits(self.keys.first + key, room);
            } else {
                let place = random.below(DATA_PLACES) as usize;
                room.copy_from_slice(&self.data[place..place + room.len()]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::{Cursor, compile};
    use crate::target::Protocol;
    use crate::workload::{Sizes, Workload, parse_mix};
    use std::collections::VecDeque;

    /// Both forms of the first request of a mix.
    fn both(mix: &str, protocol: Protocol, key: u64) -> Option<(String, String)> {
        let mut workload = Workload::new(mix, parse_mix(mix).unwrap());
        workload.sizes = Sizes::Fixed(7);
        workload.keys.first = 5;
        let program = compile(&workload, protocol, false, 1).unwrap();
        let step = &program.ops[0].steps[0];
        let (mut rendered, mut cast) = (b"before".to_vec(), b"before".to_vec());
        let (draw, _) = program.draws(0, 1);
        let mut cursor = Cursor {
            key,
            random: Random::new(key),
            owner: (0, 1),
            draw: &draw,
            checks: &mut VecDeque::new(),
            again: &[],
        };
        program.render(step, &mut cursor, &mut rendered);
        program.cast(step.template.as_ref()?, key, Random::new(key), &mut cast);
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Some((text(rendered), text(cast)))
    }

    #[test]
    fn a_mold_gives_what_its_parts_do() {
        for protocol in [Protocol::Resp2, Protocol::MemcachedText, Protocol::MemcachedMeta] {
            for mix in ["get", "set", "del", "incr"] {
                for key in [0, 3, 94, 95, 123_456, 999_999] {
                    let (rendered, cast) = both(mix, protocol, key).expect("a template");
                    assert_eq!(rendered, cast, "{protocol} {mix} {key}");
                    let digits = format!("key:{:012}", key + 5);
                    assert!(cast.starts_with("before") && cast.contains(&digits), "{cast}");
                }
            }
        }
        assert!(both("mget_3", Protocol::Resp2, 1).is_none());
        assert!(both("set", Protocol::MemcachedBinary, 1).is_none());
    }
}
