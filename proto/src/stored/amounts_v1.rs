//! Format 1 of amounts: pairs of dimension and units, in order of the dimensions.

use super::fault::Fault;
use super::names::Names;
use super::reader::Reader;
use super::writer::Writer;
use weir_admission::Amounts;
use weir_admission::limits::DIMENSIONS_MAX;

pub(super) fn write(w: &mut Writer, amounts: &Amounts) {
    w.length(amounts.len());
    for (dimension, units) in amounts.iter() {
        w.text(dimension.as_str());
        w.u64(units);
    }
}

pub(super) fn read(
    r: &mut Reader<'_>,
    field: &'static str,
    names: &mut Names,
) -> Result<Amounts, Fault> {
    let length = r.length(field, DIMENSIONS_MAX)?;
    if length == 0 {
        return Ok(Amounts::default());
    }
    let mut list = Vec::with_capacity(length);
    for _ in 0..length {
        let dimension = names.dimensions.read(r, field)?;
        if list.last().is_some_and(|(before, _)| *before >= dimension) {
            return Err(Fault::invalid(
                field,
                "must be in order of the dimensions, each once",
            ));
        }
        list.push((dimension, r.u64(field)?));
    }
    Amounts::new(list).map_err(|rule| Fault::invalid(field, rule))
}
