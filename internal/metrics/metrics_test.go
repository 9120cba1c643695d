package metrics_test

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/scaffe/scaffe/internal/metrics"
)

// get returns what a server answers.
func get(t *testing.T, url string) string {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v\n%s", url, resp.Status, err, b)
	}
	return string(b)
}

func serve(t *testing.T, g prometheus.Gatherer) *metrics.Server {
	t.Helper()
	s, err := metrics.Listen(":0")
	if err != nil {
		t.Fatal(err)
	}
	s.Serve(g)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestServed(t *testing.T) {
	m := metrics.NewTraining()
	url := serve(t, m.Registry).URL()
	if text := get(t, url); !strings.Contains(text, "scaffe_snapshots_total 0\n") || strings.Contains(text, "scaffe_loss ") {
		t.Errorf("before training begins, a total is not 0 or a gauge has a value:\n%s", text)
	}
	m.Info.WithLabelValues("SC-B", "reduce", "net").Set(1)
	m.Loss.Set(3)
	m.Loss.Set(2.5)
	m.Images.Set(64)
	m.Images.Set(128)
	m.Seconds.Input.Set(0.5)
	m.Push.Set(0.25)
	m.Snapshots.Inc()
	m.Snapshots.Inc()
	m.TestScore.WithLabelValues(`a "b" \ c`).Set(0.5)
	m.TestScore.WithLabelValues("loss").Set(0.25)
	text := get(t, url)
	for _, want := range []string{
		`scaffe_info{aggregate="reduce",design="SC-B",net="net"} 1` + "\n",
		"# TYPE scaffe_loss gauge\nscaffe_loss 2.5\n",
		"# TYPE scaffe_images_total counter\nscaffe_images_total 128\n",
		`scaffe_seconds_total{part="exposed_communication"} 0` + "\n" + `scaffe_seconds_total{part="input"} 0.5` + "\n",
		`scaffe_collective_seconds_total{direction="push"} 0.25` + "\n",
		"# TYPE scaffe_snapshots_total counter\nscaffe_snapshots_total 2\n",
		`scaffe_test_score{name="a \"b\" \\ c"} 0.5` + "\n" + `scaffe_test_score{name="loss"} 0.25` + "\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

// An address without a host is this machine's own.
func TestAddresses(t *testing.T) {
	for in, want := range map[string]string{
		":9100": "127.0.0.1:9100", "0.0.0.0:9100": "0.0.0.0:9100", "[::1]:9100": "[::1]:9100", "localhost:0": "localhost:0",
		"9100": "", "": "", "host": "", ":": "", ":port": "", ":99999": "", "1.2.3.4": "",
	} {
		if got, err := metrics.Address(in); got != want || (err == nil) != (want != "") {
			t.Errorf("%q is %q (%v), want %q", in, got, err, want)
		}
	}
	s := serve(t, prometheus.NewRegistry())
	if !strings.HasPrefix(s.URL(), "http://127.0.0.1:") {
		t.Errorf("without a host it listens at %s", s.URL())
	}
}

// A busy port is an error that says which.
func TestBusy(t *testing.T) {
	s := serve(t, prometheus.NewRegistry())
	address := strings.TrimSuffix(strings.TrimPrefix(s.URL(), "http://"), "/metrics")
	if _, err := metrics.Listen(address); err == nil || !strings.Contains(err.Error(), address) {
		t.Errorf("listening twice at %s: %v", address, err)
	}
}

// Numbers may be set while they are read.
func TestConcurrent(t *testing.T) {
	m := metrics.NewTraining()
	url := serve(t, m.Registry).URL()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := range 500 {
				m.Snapshots.Inc()
				m.Loss.Set(float64(i))
				m.Iterations.Set(500)
			}
		})
	}
	for range 20 {
		get(t, url)
	}
	wg.Wait()
	if text := get(t, url); !strings.Contains(text, "\nscaffe_snapshots_total 2000\n") || !strings.Contains(text, "\nscaffe_iterations_total 500\n") {
		t.Errorf("2000 additions came to\n%s", text)
	}
}
