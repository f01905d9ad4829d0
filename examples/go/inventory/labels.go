package main

import (
	"context"
	"net/http"
	"runtime/pprof"

	"go.opentelemetry.io/otel/trace"
)

// Labelled has the goroutine that serves a request carry its route and its span as labels, which whoever profiles this process sees: the
// one thing that profiles of a Go service need to be told.
func labelled(route string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		labels := []string{"endpoint", route, "method", r.Method}
		if span := trace.SpanContextFromContext(r.Context()); span.IsSampled() {
			labels = append(labels, "trace_id", span.TraceID().String(), "span_id", span.SpanID().String())
		}
		pprof.Do(r.Context(), pprof.Labels(labels...), func(ctx context.Context) {
			next.ServeHTTP(w, r.WithContext(ctx))
		})
	})
}
