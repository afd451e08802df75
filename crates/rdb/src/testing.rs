use crate::format::Text;
use crate::{Malformed, Visit};

/// The strings that `visit` finds in a block.
pub(crate) fn texts_of(
    bytes: &[u8],
    visit: impl Fn(&[u8], &mut Visit<'_, Malformed>) -> Result<(), Malformed>,
) -> Option<Vec<Vec<u8>>> {
    let mut texts = Vec::new();
    let mut add = |text: Text<'_>| {
        texts.push(match text {
            Text::Plain(bytes) => bytes.to_vec(),
            Text::Integer(value) => value.to_string().into_bytes(),
            Text::Packed { .. } => return Err(Malformed),
        });
        Ok(())
    };
    visit(bytes, &mut add).ok()?;
    Some(texts)
}
