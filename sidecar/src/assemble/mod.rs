//! From a window to a [`ProfileSet`](profiler_proto::ProfileSet): the one place that builds a model.
