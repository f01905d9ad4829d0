//! OTLP profiles from the pod's SDKs, over gRPC and HTTP.
