package metrics

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/net/netutil"
)

// loopback is who may ask where an address names no host.
const loopback = "127.0.0.1"

// Limits on what clients may take of a training process: an address such as
// 0.0.0.0:9100 is open to anyone. Prometheus needs one connection, one request
// at a time, and a second.
const (
	maxConnections = 16
	maxRequests    = 4        // answered at once
	maxHeader      = 16 << 10 // bytes
	headerTimeout  = 10 * time.Second
	writeTimeout   = 30 * time.Second // from the request to the answer's last byte
	idleTimeout    = 2 * time.Minute  // between two requests; Prometheus asks every minute or more often
)

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
		return nil, fmt.Errorf("metrics: cannot listen on %s: %w (use another port, or :0 for any free port)", full, err)
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
		return "", fmt.Errorf("metrics: invalid address %q: want [HOST]:PORT, such as :9100 (this machine only) or 0.0.0.0:9100 (all interfaces)", address)
	}
	if host == "" {
		host = loopback
	}
	return net.JoinHostPort(host, port), nil
}

// URL returns where the metrics are.
func (s *Server) URL() string { return "http://" + s.listener.Addr().String() + "/metrics" }

// Serve answers for g from now on.
func (s *Server) Serve(g prometheus.Gatherer) {
	s.http = newHTTP(g)
	l := netutil.LimitListener(s.listener, maxConnections)
	go func() { _ = s.http.Serve(l) }() // until Close
}

// newHTTP returns a server within the limits.
func newHTTP(g prometheus.Gatherer) *http.Server {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(g, promhttp.HandlerOpts{MaxRequestsInFlight: maxRequests}))
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "scaffe: see /metrics\n")
	})
	return &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: headerTimeout, ReadTimeout: headerTimeout, // no request has a body
		WriteTimeout: writeTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
	}
}

// Close ends the server.
func (s *Server) Close() error {
	if s.http == nil {
		return s.listener.Close()
	}
	return s.http.Close()
}
