package metrics

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// loopback is who may ask where an address names no host.
const loopback = "127.0.0.1"

// Server answers at one address, under /metrics.
type Server struct {
	listener net.Listener
	http     *http.Server
}

// Listen takes an address, HOST:PORT, without answering yet. Without a host it
// is this machine's own, 127.0.0.1: others see the metrics only where that is
// asked for, as in 0.0.0.0:9100. Port 0 is any free one.
func Listen(address string) (*Server, error) {
	full, err := Address(address)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", full)
	if err != nil {
		return nil, fmt.Errorf("metrics: cannot listen at %s: %w (another port, or :0 for any free one?)", full, err)
	}
	return &Server{listener: l}, nil
}

// Address returns the host and port that an address stands for.
func Address(address string) (string, error) {
	host, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	if err != nil || port == "" {
		return "", fmt.Errorf("metrics: address %q is not [HOST]:PORT: use such as :9100 (this machine alone) or 0.0.0.0:9100 (everybody)", address)
	}
	if host == "" {
		host = loopback
	}
	return net.JoinHostPort(host, port), nil
}

// URL returns where the metrics are.
func (s *Server) URL() string { return "http://" + s.listener.Addr().String() + "/metrics" }

// Serve answers for r from now on. It fails where r has a metric that is none
// to Prometheus, such as one with the same label twice.
func (s *Server) Serve(r *Registry) error {
	all := prometheus.NewRegistry()
	if err := all.Register(r); err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(all, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "scaffe: see /metrics\n")
	})
	s.http = &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = s.http.Serve(s.listener) }() // until Close
	return nil
}

// Close ends the server.
func (s *Server) Close() error {
	if s.http == nil {
		return s.listener.Close()
	}
	return s.http.Close()
}
