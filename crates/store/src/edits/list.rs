//! Changes of lists.

use crate::collections::Boxed;
use crate::collections::blob::{self, HEADER_LEN};
use crate::collections::chunks::{Chunks, Encoded, element_at, seek, without_equal};
use crate::collections::list::List;
use crate::entry::Editor;
use crate::items::Encoding;
use smallvec::SmallVec;

/// Bytes above which a list is boxed: what a push at the front moves at most.
const BLOB_LEN_MAX: usize = 2 << 10;

/// Elements of the list; none if there is none.
pub(crate) fn len(editor: &mut Editor<'_, '_>) -> usize {
    editor.view::<List<'_>>().map_or(0, |list| list.len())
}

fn change_boxed<R>(
    editor: &mut Editor<'_, '_>,
    change: impl FnOnce(&mut Chunks) -> R,
) -> Option<R> {
    let result = editor.with(Boxed::list_mut, |chunks, _| change(chunks))?;
    editor.touch();
    Some(result)
}

/// Inserts an element before the one at `index`, or at the end.
pub(crate) fn insert(editor: &mut Editor<'_, '_>, index: usize, value: &[u8]) {
    let element = Encoded::of(value);
    let [prefix, body, suffix] = element.parts();
    if editor.blob().len().max(HEADER_LEN) + element.len() > BLOB_LEN_MAX {
        box_up(editor);
    }
    if change_boxed(editor, |chunks| chunks.insert(index, value)).is_some() {
        return;
    }
    if !editor.exists() {
        let mut bytes: SmallVec<[u8; 256]> = SmallVec::from_slice(&blob::header(1));
        [prefix, body, suffix].iter().for_each(|part| bytes.extend_from_slice(part));
        return editor.store(Encoding::ListBlob, &bytes);
    }
    let (count, bytes) = (blob::count(editor.blob()), &editor.blob()[HEADER_LEN..]);
    let at = HEADER_LEN + seek(bytes, count, index.min(count));
    editor.splice(at..at, &[prefix, body, suffix], count + 1);
}

/// Replaces an element that is there.
pub(crate) fn set(editor: &mut Editor<'_, '_>, index: usize, value: &[u8]) {
    let element = Encoded::of(value);
    if editor.blob().len() + element.len() > BLOB_LEN_MAX {
        box_up(editor);
    }
    if change_boxed(editor, |chunks| chunks.set(index, value)).is_some() {
        return;
    }
    let (count, bytes) = (blob::count(editor.blob()), &editor.blob()[HEADER_LEN..]);
    let start = seek(bytes, count, index);
    let end = element_at(bytes, start).1;
    editor.splice(HEADER_LEN + start..HEADER_LEN + end, &element.parts(), count);
}

/// Removes `removed` elements, which are there, from `index` on.
pub(crate) fn remove(editor: &mut Editor<'_, '_>, index: usize, removed: usize) {
    if change_boxed(editor, |chunks| chunks.remove(index, removed)).is_some() {
        return;
    }
    let (count, bytes) = (blob::count(editor.blob()), &editor.blob()[HEADER_LEN..]);
    let (start, end) = (seek(bytes, count, index), seek(bytes, count, index + removed));
    editor.splice(HEADER_LEN + start..HEADER_LEN + end, &[], count - removed);
}

/// Removes up to `limit` elements equal to `value`, the first or the last ones;
/// how many.
pub(crate) fn remove_equal(
    editor: &mut Editor<'_, '_>,
    value: &[u8],
    limit: usize,
    from_end: bool,
) -> usize {
    let remove = |chunks: &mut Chunks, _| chunks.remove_equal(value, limit, from_end);
    if let Some(removed) = editor.with(Boxed::list_mut, remove) {
        if removed > 0 {
            editor.touch();
        }
        return removed;
    }
    let bytes = editor.blob();
    let (count, len) = (blob::count(bytes), bytes.len());
    if count == 0 {
        return 0;
    }
    let (rest, removed) = without_equal(&bytes[HEADER_LEN..], count, value, limit, from_end);
    if removed > 0 {
        editor.splice(HEADER_LEN..len, &[&rest], count - removed);
    }
    removed
}

/// Makes the list a deque of runs, if it is none.
fn box_up(editor: &mut Editor<'_, '_>) {
    if editor.is_boxed() {
        return;
    }
    let bytes = editor.blob();
    let count = blob::count(bytes);
    let chunks = Chunks::of(bytes.get(HEADER_LEN..).unwrap_or_default(), count);
    editor.store_boxed(Encoding::ListBoxed, Boxed::List(chunks));
}
