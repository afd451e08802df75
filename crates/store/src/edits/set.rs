//! Changes of sets.

use crate::algorithms::number::parse_integer;
use crate::collections::blob::{self, BLOB_ELEMENTS_MAX, BLOB_STRING_LEN_MAX, Prefix};
use crate::collections::fields::Fields;
use crate::collections::integers::{self, INTEGERS_MAX};
use crate::collections::set::{Set, find};
use crate::collections::{Boxed, Means};
use crate::entry::Editor;
use crate::items::Encoding;

/// Adds a member; whether it is new.
pub(crate) fn add(editor: &mut Editor<'_, '_>, member: &[u8]) -> bool {
    let integer = parse_integer(member);
    if !editor.exists() {
        match integer {
            Some(value) => {
                let bytes = integers::encode(std::iter::once(value), value);
                editor.store(Encoding::Integers, &bytes);
                return true;
            }
            None => editor.store(Encoding::SetBlob, blob::EMPTY),
        }
    }
    if editor.view::<Set<'_>>().is_some_and(|set| set.is_integers()) {
        match integer {
            Some(value) => return add_integer(editor, value),
            None => widen(editor),
        }
    }
    if member.len() > BLOB_STRING_LEN_MAX {
        box_up(editor);
    }
    let add = |fields: &mut Fields, means: Means<'_>| {
        fields.get(means, member).is_none() && fields.set(means, member, b"")
    };
    if let Some(is_new) = editor.change(Boxed::fields_mut, add) {
        return is_new;
    }
    let bytes = editor.blob();
    if find(bytes, member).is_some() {
        return false;
    }
    let (count, end) = (blob::count(bytes), bytes.len());
    editor.splice(end..end, &[Prefix::of(member.len()).bytes(), member], count + 1);
    if count + 1 > BLOB_ELEMENTS_MAX {
        box_up(editor);
    }
    true
}

fn add_integer(editor: &mut Editor<'_, '_>, value: i64) -> bool {
    let bytes = editor.blob();
    let Err(index) = integers::find(bytes, value) else { return false };
    let count = integers::len(bytes);
    if integers::fits(bytes, value) {
        let (at, width) = integers::offset_of(bytes, index);
        editor.splice_bytes(at..at, &[&value.to_le_bytes()[..width]]);
    } else {
        let mut values: Vec<i64> = integers::iter(bytes).collect();
        values.insert(index, value);
        let bytes = integers::encode(values.into_iter(), value);
        editor.store(Encoding::Integers, &bytes);
    }
    if count + 1 > INTEGERS_MAX {
        box_up(editor);
    }
    true
}

/// Removes a member; whether it was there.
pub(crate) fn remove(editor: &mut Editor<'_, '_>, member: &[u8]) -> bool {
    let remove = |fields: &mut Fields, means: Means<'_>| fields.remove(means, member);
    if let Some(was_there) = editor.change(Boxed::fields_mut, remove) {
        return was_there;
    }
    match editor.view::<Set<'_>>() {
        Some(Set::Integers(bytes)) => {
            let index = parse_integer(member).map(|value| integers::find(bytes, value));
            let Some(Ok(index)) = index else { return false };
            let (at, width) = integers::offset_of(bytes, index);
            editor.splice_bytes(at..at + width, &[]);
            true
        }
        Some(Set::Blob(bytes)) => {
            let count = blob::count(bytes);
            let Some(range) = find(bytes, member) else { return false };
            editor.splice(range, &[], count - 1);
            true
        }
        _ => false,
    }
}

/// Gives up storing integers as such, though all members are.
pub(crate) fn widen(editor: &mut Editor<'_, '_>) {
    let Some(set @ Set::Integers(_)) = editor.view::<Set<'_>>() else { return };
    if set.len() > BLOB_ELEMENTS_MAX {
        return box_up(editor);
    }
    let mut bytes = blob::header(set.len()).to_vec();
    set.visit(|member| {
        member.with_text(|text| {
            bytes.extend_from_slice(Prefix::of(text.len()).bytes());
            bytes.extend_from_slice(text);
        });
    });
    editor.store(Encoding::SetBlob, &bytes);
}

/// Makes the set a table of members, if it is none.
fn box_up(editor: &mut Editor<'_, '_>) {
    if editor.is_boxed() {
        return;
    }
    let means = editor.means();
    let mut fields = Fields::new();
    if let Some(set) = editor.view::<Set<'_>>() {
        set.visit(|member| {
            member.with_text(|text| fields.set(means, text, b""));
        });
    }
    editor.store_boxed(Encoding::SetBoxed, Boxed::Fields(fields));
}
