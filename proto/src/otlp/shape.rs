//! The shapes of OTLP's messages, for the walk that bounds memory before decoding ([`crate::wire`]).
//!
//! Field numbers: opentelemetry-proto 1.10, collector/profiles/v1development/profiles_service.proto,
//! profiles/v1development/profiles.proto, resource/v1/resource.proto, common/v1/common.proto.

use super::messages::{
    AnyValue, Function, KeyValue, KeyValueAndUnit, Line, Link, Location, Mapping, Profile, ResourceProfiles, Sample,
    ScopeProfiles, Stack,
};
use crate::wire::Field::{Message, Numbers, Text};
use crate::wire::{Field, Shape};

/// `ExportProfilesServiceRequest`, and `ProfilesData`, which is the same on the wire.
pub(super) static REQUEST: Shape = plain::<()>(&[(1, Message(&RESOURCE_PROFILES)), (2, Message(&DICTIONARY))]);

/// `ProcessContext` (opentelemetry/proto/processcontext/v1development/process_context.proto).
pub(super) static PROCESS_CONTEXT: Shape = plain::<()>(&[(1, Message(&RESOURCE)), (2, Message(&KEY_VALUE))]);

static RESOURCE_PROFILES: Shape =
    plain::<ResourceProfiles>(&[(1, Message(&RESOURCE)), (2, Message(&SCOPE_PROFILES)), (3, Text)]);
static RESOURCE: Shape = plain::<()>(&[(1, Message(&KEY_VALUE)), (3, Message(&ENTITY_REF))]);
static ENTITY_REF: Shape =
    plain::<opentelemetry_proto::tonic::common::v1::EntityRef>(&[(1, Text), (2, Text), (3, Text), (4, Text)]);
static SCOPE_PROFILES: Shape = plain::<ScopeProfiles>(&[(1, Message(&SCOPE)), (2, Message(&PROFILE)), (3, Text)]);
static SCOPE: Shape = plain::<()>(&[(1, Text), (2, Text), (3, Message(&KEY_VALUE))]);
static PROFILE: Shape = plain::<Profile>(&[(2, Message(&SAMPLE)), (7, Text), (9, Text), (10, Text), (11, Numbers)]);
static SAMPLE: Shape = plain::<Sample>(&[(2, Numbers), (4, Numbers), (5, Numbers)]);

static DICTIONARY: Shape = plain::<()>(&[
    (1, Message(&MAPPING)),
    (2, Message(&LOCATION)),
    (3, Message(&FUNCTION)),
    (4, Message(&LINK)),
    (5, Text),
    (6, Message(&ATTRIBUTE)),
    (7, Message(&STACK)),
]);
static MAPPING: Shape = plain::<Mapping>(&[(5, Numbers)]);
static LOCATION: Shape = plain::<Location>(&[(3, Message(&LINE)), (4, Numbers)]);
static LINE: Shape = plain::<Line>(&[]);
static FUNCTION: Shape = plain::<Function>(&[]);
static LINK: Shape = plain::<Link>(&[(1, Text), (2, Text)]);
static ATTRIBUTE: Shape = plain::<KeyValueAndUnit>(&[(2, Message(&ANY_VALUE))]);
static STACK: Shape = plain::<Stack>(&[(1, Numbers)]);

static KEY_VALUE: Shape = plain::<KeyValue>(&[(1, Text), (2, Message(&ANY_VALUE))]);
static KEY_VALUES: Shape = plain::<()>(&[(1, Message(&KEY_VALUE))]);
static VALUES: Shape = plain::<()>(&[(1, Message(&ANY_VALUE))]);
static ANY_VALUE: Shape = Shape {
    size: size_of::<AnyValue>(),
    nests: true,
    fields: &[(1, Text), (5, Message(&VALUES)), (6, Message(&KEY_VALUES)), (7, Text)],
};

const fn plain<T>(fields: &'static [(u64, Field)]) -> Shape {
    Shape { size: size_of::<T>(), nests: false, fields }
}
