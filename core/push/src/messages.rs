//! The messages that carry pprof: Pyroscope's `push.v1` and Parca's `WriteRaw`. Field numbers and types are theirs.

pub(crate) mod pyroscope {
    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct PushRequest {
        #[prost(message, repeated, tag = "1")]
        pub(crate) series: Vec<Series>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct Series {
        #[prost(message, repeated, tag = "1")]
        pub(crate) labels: Vec<super::Label>,
        #[prost(message, repeated, tag = "2")]
        pub(crate) samples: Vec<Sample>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct Sample {
        #[prost(bytes = "vec", tag = "1")]
        pub(crate) raw_profile: Vec<u8>,
        #[prost(string, tag = "2")]
        pub(crate) id: String,
    }
}

pub(crate) mod parca {
    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct WriteRawRequest {
        #[prost(message, repeated, tag = "2")]
        pub(crate) series: Vec<Series>,
        /// Whether addresses are those of files.
        #[prost(bool, tag = "3")]
        pub(crate) normalized: bool,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct Series {
        #[prost(message, optional, tag = "1")]
        pub(crate) labels: Option<LabelSet>,
        #[prost(message, repeated, tag = "2")]
        pub(crate) samples: Vec<Sample>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct LabelSet {
        #[prost(message, repeated, tag = "1")]
        pub(crate) labels: Vec<super::Label>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct Sample {
        #[prost(bytes = "vec", tag = "1")]
        pub(crate) raw_profile: Vec<u8>,
    }
}

/// A label of a series, which both have alike.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Label {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "2")]
    pub(crate) value: String,
}

/// `google.rpc.Status`, of which the details may say when to try again.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Status {
    #[prost(message, repeated, tag = "3")]
    pub(crate) details: Vec<Any>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Any {
    #[prost(string, tag = "1")]
    pub(crate) type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) value: Vec<u8>,
}

/// `google.rpc.RetryInfo`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct RetryInfo {
    #[prost(message, optional, tag = "1")]
    pub(crate) retry_delay: Option<Duration>,
}

/// `google.protobuf.Duration`.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(crate) struct Duration {
    #[prost(int64, tag = "1")]
    pub(crate) seconds: i64,
    #[prost(int32, tag = "2")]
    pub(crate) nanos: i32,
}

/// OpenTelemetry's answer.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ExportResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) partial_success: Option<PartialSuccess>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct PartialSuccess {
    #[prost(int64, tag = "1")]
    pub(crate) rejected_profiles: i64,
    #[prost(string, tag = "2")]
    pub(crate) error_message: String,
}
