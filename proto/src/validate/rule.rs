//! The rules that a request must obey, each with what asks for it.

/// Declares the rules: name, what must hold, who asks for it.
macro_rules! rules {
    ($($name:ident: $what:literal, $source:literal;)*) => {
        /// What must hold for a request, so that every receiver takes it.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum Rule {
            $(#[doc = $what] $name,)*
        }

        impl Rule {
            /// All rules.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// What must hold.
            #[must_use]
            pub const fn what(self) -> &'static str {
                match self { $(Self::$name => $what,)* }
            }

            /// Who asks for it: a part of the specification, a checker's or a receiver's source, or what was seen of one.
            #[must_use]
            pub const fn source(self) -> &'static str {
                match self { $(Self::$name => $source,)* }
            }
        }
    };
}

// `profiles.proto`, `common.proto`: opentelemetry-proto 1.10. `profcheck`: open-telemetry/sig-profiling, profcheck/check.go.
// `Parca`: pkg/normalizer/otel.go of 2026-07. `Pyroscope`: pkg/ingester/otlp/convert.go and pkg/validation of 2026-08.
// `seen`: what a running receiver did with such a request in November 2026.
rules! {
    Protobuf: "the bytes are an ExportProfilesServiceRequest", "OTLP specification, binary protobuf encoding";
    Utf8: "strings are UTF-8", "protobuf language guide, string";

    Dictionary: "the dictionary is there", "profcheck; Pyroscope";
    ResourceProfiles: "there are resource_profiles", "profcheck; Pyroscope";
    Resource: "the resource message is there, even if empty", "Parca, which reads its attributes unasked";
    ScopeProfiles: "there are scope_profiles", "profcheck";
    Scope: "the scope message is there, even if empty", "Parca: seen to end the process without it";
    Profiles: "there are profiles", "profcheck";
    Samples: "there are samples", "Parca";
    SamplesTooMany: "a profile has at most 16000 samples", "Pyroscope: seen to answer 400";

    TableEmpty: "each of the seven tables has its element 0", "profiles.proto, ProfilesDictionary; Pyroscope: seen to answer 500";
    ZeroElement: "element 0 is the empty message", "profcheck, checkZeroVal; Parca, isEmptyLink";
    Duplicate: "no two elements of a table are equal", "profiles.proto, ProfilesDictionary";
    Orphan: "every element but 0 is referred to", "profiles.proto, ProfilesDictionary";
    OutOfRange: "an index is within its table", "profiles.proto; profcheck";
    StringReference: "keys and strings stand in place, not as references to the string table", "Pyroscope: seen to answer 400; Parca";

    AttributeKey: "an attribute has a key", "Parca";
    AttributeKeyTwice: "the keys of one message's attributes are distinct", "profiles.proto, attribute_indices; common.proto";
    AttributeValue: "an attribute's value is set", "Parca";
    ArrayOfOne: "a single text of a sample is a string, not an array of one", "Parca: seen to drop such";
    CodeAttribute: "functions, files and lines are no attributes", "semantic conventions, registry code.*";
    LabelTooLong: "a text of a resource or a sample has at most 2048 bytes", "Pyroscope, validation.max-length-label-value";
    LabelsTooMany: "a sample has at most 100 attributes", "Pyroscope, validation.max-profile-stacktrace-sample-labels";
    ResourceAttributes: "a resource has at most 25 string or integer attributes", "Pyroscope, at most 30 labels with its own";

    MappingRange: "memory_start < memory_limit, or both are 0", "profcheck";
    MappingBuildId: "a mapping has a build id: .gnu, .go or .htlhash", "OpenTelemetry specification, profiles/mappings.md";
    AddressRange: "an address lies in its mapping", "profiles.proto, Location.address";
    FrameUnnamed: "a frame has a function", "Pyroscope: seen to leave out the others";
    FunctionUnnamed: "a function has a name, a system name or a file", "profiles.proto, Function";
    NegativePosition: "lines and columns are not negative", "profcheck";
    LinkIdLength: "a trace id has 16 bytes and a span id 8", "profcheck";
    LinkIdZero: "trace and span ids are not all zero", "W3C Trace Context";

    SampleType: "sample_type has a type and a unit", "Pyroscope, Parca: the profile's name is made of them";
    PeriodType: "period_type has a type and a unit", "Parca: seen to fail all queries; Pyroscope: seen to answer 400";
    Period: "period is positive", "Pyroscope: seen to answer 400";
    Name: "a type, unit or scope's name is made of a-z, A-Z, 0-9 and _", "Pyroscope, which refuses -; Parca's query language";
    Time: "time_unix_nano is set", "Pyroscope, which refuses what is older than an hour";
    Duration: "duration_nano is not 0", "Parca, which tells deltas by it";
    ProfileId: "a profile_id has 16 bytes, not all zero", "profiles.proto, Profile.profile_id";
    OriginalPayload: "original_payload and its format stand together", "profiles.proto, Profile.original_payload_format";

    SampleEmpty: "a sample has a value or timestamps", "profiles.proto, Sample";
    SeveralValues: "a sample without timestamps has one value", "Parca: seen to end the process; Pyroscope: seen to answer 500";
    ValuesAndTimestamps: "a sample has a value or timestamps, not both", "Pyroscope: seen to answer 500";
    ValuesDiffer: "there are as many values as timestamps", "profiles.proto, Sample";
    Timestamp: "a timestamp lies in the profile's window", "profcheck";
    Shape: "the samples of a profile all have values or all have timestamps", "profiles.proto, Sample; profcheck";
    SampleTwice: "stack, attributes and link of a sample are no other's in the profile", "profiles.proto, Sample";
}
