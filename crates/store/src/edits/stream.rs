//! Changes of streams.

use crate::collections::Boxed;
use crate::collections::stream::Stream;
use crate::entry::Editor;
use crate::items::Encoding;
use keyway_memory::nodes;

/// Makes the key's value a stream without entries, if there is none.
pub(crate) fn make(editor: &mut Editor<'_, '_>) {
    if !editor.exists() {
        editor.store_boxed(Encoding::StreamBoxed, Boxed::Stream(nodes::boxed(Stream::new())));
    }
}

/// Lets `work` change the key's stream; nothing without one.
pub(crate) fn edit<R>(
    editor: &mut Editor<'_, '_>,
    work: impl FnOnce(&mut Stream) -> R,
) -> Option<R> {
    editor.with(Boxed::stream_mut, |stream, _| work(stream))
}
