// Inventory keeps the stock of the shop and says in which order to pick what was ordered: an ordinary Go service.
//
// In: POST /reservations with items, from the shop. Out: the shelves to go to, as JSON, by a short way round. It makes spans with
// OpenTelemetry, as services do; there is no profiling in it but the few lines of labels.go.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.26.0"
)

// Longest body of a request: an order has some dozen items.
const maxBody = 1 << 20

func main() {
	listen := flag.String("listen", "127.0.0.1:8081", "address of the service; port 0 takes a free one")
	untilEOF := flag.Bool("until-eof", false, "stop, too, when standard input ends")
	flag.Parse()
	if err := run(*listen, *untilEOF); err != nil {
		log.Fatalf("inventory: %v", err)
	}
}

func run(listen string, untilEOF bool) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if untilEOF {
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			stop()
		}()
	}
	spans, err := openTraces(ctx)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return fmt.Errorf("-listen %s: %w", listen, err)
	}
	mux := http.NewServeMux()
	mux.Handle("POST /reservations", labelled("/reservations", http.HandlerFunc(reserve)))
	server := &http.Server{Handler: otelhttp.NewHandler(mux, "inventory"), ReadHeaderTimeout: 5 * time.Second}
	fmt.Printf("ready http://%s\n", listener.Addr())
	go func() {
		<-ctx.Done()
		grace, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		_ = server.Shutdown(grace)
		_ = spans.Shutdown(grace)
	}()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Spans are made in any case, and sent where the environment says so, as the specification of OpenTelemetry has it.
func openTraces(ctx context.Context) (*trace.TracerProvider, error) {
	options := []trace.TracerProviderOption{
		trace.WithResource(resource.NewSchemaless(semconv.ServiceName("inventory"))),
	}
	if os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != "" || os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" {
		exporter, err := otlptracegrpc.New(ctx)
		if err != nil {
			return nil, fmt.Errorf("traces: %w", err)
		}
		options = append(options, trace.WithBatcher(exporter))
	}
	provider := trace.NewTracerProvider(options...)
	otel.SetTracerProvider(provider)
	otel.SetTextMapPropagator(propagation.TraceContext{})
	return provider, nil
}

// An Item of an order.
type Item struct {
	SKU      string `json:"sku"`
	Quantity uint32 `json:"quantity"`
}

func reserve(w http.ResponseWriter, r *http.Request) {
	var items []Item
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(&items); err != nil {
		http.Error(w, err.Error(), http.StatusUnprocessableEntity)
		return
	}
	shelves := make([]Shelf, 0, len(items))
	for _, item := range items {
		shelves = append(shelves, shelfOf(item))
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(shortest(shelves))
}
