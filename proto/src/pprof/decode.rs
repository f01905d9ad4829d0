//! From a pprof file to the model.
//!
//! In: bytes of a file, gzip or not, from anywhere. Out: one compact [`ProfileSet`] with a profile per sample type, which
//! share their stacks, or an error that names the field.

use std::io::Read;

use flate2::read::MultiGzDecoder;
use prost::Message;

use super::messages::{self as wire, PROFILE};
use super::source::Source;
use super::{default_sample_type, names};
use crate::error::DecodeError;
use crate::limits::Limits;
use crate::model::compact::{Identity, SumEntry};
use crate::model::{AttributeId, AttributeSetId, Dictionary, Kind, Profile, ProfileSet, Sample, Value};

/// The first bytes of a gzip stream (RFC 1952).
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// The profiles of a file, one per sample type, in its order; samples with equal stack and labels are summed.
///
/// `samples`/`count` followed by `cpu`/`nanoseconds` that are nothing but the same times the period become one on-CPU
/// profile, of which [`encode`](super::encode) makes both again. Every profile has a sample for every stack, be its value
/// 0. The resource and scope are empty: pprof knows neither.
///
/// # Errors
///
/// [`DecodeError`] if `bytes` are no pprof file, a reference points to nothing, an id is 0 or stands twice, a sample has
/// not one value per type, or the file goes beyond `limits`, of which `bytes` counts what comes out of gzip.
pub fn decode(bytes: &[u8], limits: &Limits) -> Result<ProfileSet, DecodeError> {
    if !bytes.starts_with(&GZIP) {
        return decode_plain(bytes, limits);
    }
    let mut plain = Vec::new();
    let bound = u64::try_from(limits.bytes).unwrap_or(u64::MAX).saturating_add(1);
    MultiGzDecoder::new(bytes)
        .take(bound)
        .read_to_end(&mut plain)
        .map_err(|error| DecodeError::Malformed { format: "gzip", detail: error.to_string() })?;
    decode_plain(&plain, limits)
}

fn decode_plain(bytes: &[u8], limits: &Limits) -> Result<ProfileSet, DecodeError> {
    crate::wire::check(bytes, &PROFILE, limits)?;
    let file = wire::Profile::decode(bytes)
        .map_err(|error| DecodeError::Malformed { format: "protobuf", detail: error.to_string() })?;
    let mut source = Source::new(&file, limits)?;
    let mut set = ProfileSet::default();
    let mut shared: Option<(AttributeSetId, Vec<Identity>)> = None;
    for column in columns(&file) {
        let kind = kind(&file, column, &mut source, &mut set.dictionary)?;
        let (attributes, rows) = match &mut shared {
            Some(shared) => shared,
            None => {
                let attributes = profile_attributes(&file, &mut source, &mut set.dictionary)?;
                shared.insert((attributes, read_rows(&file, &mut source, &mut set.dictionary)?))
            }
        };
        source.budget.spend_on::<Profile>(1)?;
        source.budget.spend_on::<SumEntry>(rows.len())?;
        set.profiles.push(Profile {
            kind,
            // A time before 1970 is what Go makes of "no time".
            time_unix_nanos: u64::try_from(file.time_nanos).unwrap_or(0),
            duration_nanos: u64::try_from(file.duration_nanos).unwrap_or(0),
            attributes: *attributes,
            samples: sum(rows, &file, column),
        });
    }
    Ok(set)
}

/// The sample types that become profiles: all but nanoseconds that follow from on-CPU samples.
fn columns(file: &wire::Profile) -> Vec<usize> {
    let all = 0..file.sample_type.len();
    match derived_column(file) {
        Some(derived) => all.filter(|column| *column != derived).collect(),
        None => all.collect(),
    }
}

fn derived_column(file: &wire::Profile) -> Option<usize> {
    let text = |index: i64| usize::try_from(index).ok().and_then(|i| file.string_table.get(i)).map(String::as_str);
    let is = |t: &wire::ValueType, kind, unit| text(t.r#type) == Some(kind) && text(t.unit) == Some(unit);
    let per_nanos = file.period_type.as_ref().is_some_and(|t| is(t, "cpu", "nanoseconds")) && file.period > 0;
    let samples = file
        .sample_type
        .windows(2)
        .position(|pair| is(&pair[0], "samples", "count") && is(&pair[1], "cpu", "nanoseconds"))?;
    let follows = |sample: &wire::Sample| {
        let value = |column: usize| sample.value.get(column).copied();
        value(samples).map(|count| count.saturating_mul(file.period)) == value(samples + 1)
    };
    let only = file.sample_type.iter().filter(|t| is(t, "cpu", "nanoseconds")).count() == 1;
    (per_nanos && only && file.sample.iter().all(follows)).then_some(samples + 1)
}

fn kind(
    file: &wire::Profile,
    column: usize,
    source: &mut Source<'_>,
    into: &mut Dictionary,
) -> Result<Kind, DecodeError> {
    let period_type = file.period_type.unwrap_or_default();
    Ok(Kind {
        sample_type: source.value_type(&file.sample_type[column], into, &|| format!("sample_type[{column}]"))?,
        period_type: source.value_type(&period_type, into, &|| "period_type".into())?,
        period: file.period,
    })
}

/// What a file says of itself as a whole.
fn profile_attributes(
    file: &wire::Profile,
    source: &mut Source<'_>,
    into: &mut Dictionary,
) -> Result<AttributeSetId, DecodeError> {
    let mut ids: Vec<AttributeId> = Vec::new();
    if !file.comment.is_empty() {
        let texts = file.comment.iter().enumerate().map(|(i, comment)| {
            source.budget.spend_on::<Value>(1)?;
            Ok(Value::from(source.owned_text(*comment, &|| format!("comment[{i}]"))?))
        });
        let texts = texts.collect::<Result<Box<[_]>, DecodeError>>()?;
        ids.push(into.attribute(names::COMMENT, Value::List(texts)));
    }
    let texts = [
        ("drop_frames", names::DROP_FRAMES, file.drop_frames),
        ("keep_frames", names::KEEP_FRAMES, file.keep_frames),
        ("doc_url", names::DOC_URL, file.doc_url),
    ];
    for (field, name, index) in texts {
        let text = source.owned_text(index, &|| field.into())?;
        if !text.is_empty() {
            ids.push(into.attribute(name, text));
        }
    }
    let default = source.owned_text(file.default_sample_type, &|| "default_sample_type".into())?;
    if default != default_sample_type(&source.type_names(&file.sample_type)) {
        ids.push(into.attribute(names::DEFAULT_SAMPLE_TYPE, default));
    }
    Ok(into.attribute_set(ids))
}

/// The identity of each sample of the file; checks that it has one value per sample type.
fn read_rows(
    file: &wire::Profile,
    source: &mut Source<'_>,
    into: &mut Dictionary,
) -> Result<Vec<Identity>, DecodeError> {
    source.budget.spend_on::<Identity>(file.sample.len())?;
    let (mut rows, types) = (Vec::with_capacity(file.sample.len()), file.sample_type.len());
    for (i, sample) in file.sample.iter().enumerate() {
        let path = || format!("sample[{i}]");
        if sample.value.len() != types {
            let what = format!("{} values for {types} sample types", sample.value.len());
            return Err(DecodeError::invalid(format!("{}.value", path()), what));
        }
        let stack = source.stack(&sample.location_id, into, &path)?;
        let (attributes, link) = source.labels(&sample.label, into, &path)?;
        rows.push((stack, attributes, link));
    }
    Ok(rows)
}

fn sum(rows: &[Identity], file: &wire::Profile, column: usize) -> Vec<Sample> {
    let mut sums = crate::model::compact::Sums::default();
    for (&(stack, attributes, link), sample) in rows.iter().zip(&file.sample) {
        sums.add(Sample { stack, attributes, link, value: sample.value[column] });
    }
    sums.into_samples()
}
