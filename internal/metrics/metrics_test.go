package metrics_test

import (
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"

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

func serve(t *testing.T, r *metrics.Registry) *metrics.Server {
	t.Helper()
	s, err := metrics.Listen(":0")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Serve(r); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestServed(t *testing.T) {
	r := metrics.NewRegistry(metrics.Training)
	url := serve(t, r).URL()
	if text := get(t, url); !strings.Contains(text, "scaffe_snapshots_total 0\n") || strings.Contains(text, "scaffe_loss ") {
		t.Errorf("before training begins, a total is not 0 or a gauge has a value:\n%s", text)
	}
	for _, err := range []error{
		r.Set("scaffe_loss", 3),
		r.Set("scaffe_loss", 2.5),
		r.Add("scaffe_snapshots_total", 1),
		r.Add("scaffe_snapshots_total", 1),
		r.Set("scaffe_test_score", 0.5, `a "b" \ c`),
		r.Set("scaffe_test_score", 0.25, "loss"),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	text := get(t, url)
	for _, want := range []string{
		"# TYPE scaffe_loss gauge\nscaffe_loss 2.5\n",
		"# TYPE scaffe_snapshots_total counter\nscaffe_snapshots_total 2\n",
		`scaffe_test_score{name="a \"b\" \\ c"} 0.5` + "\n" + `scaffe_test_score{name="loss"} 0.25` + "\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

func TestNoSuchMetric(t *testing.T) {
	r := metrics.NewRegistry(metrics.Training)
	for _, err := range []error{r.Set("scaffe_lost", 1), r.Add("scaffe_seconds_total", 1), r.Set("scaffe_loss", 1, "a")} {
		if err == nil {
			t.Error("a metric that is not there was set")
		}
	}
	s, err := metrics.Listen(":0")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Serve(metrics.NewRegistry([]metrics.Metric{{Name: "twice", Labels: []string{"a", "a"}}})); err == nil {
		t.Error("a metric with one label twice was served")
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
	s := serve(t, metrics.NewRegistry(nil))
	if !strings.HasPrefix(s.URL(), "http://127.0.0.1:") {
		t.Errorf("without a host it listens at %s", s.URL())
	}
}

// A busy port is an error that says which.
func TestBusy(t *testing.T) {
	s := serve(t, metrics.NewRegistry(nil))
	address := strings.TrimSuffix(strings.TrimPrefix(s.URL(), "http://"), "/metrics")
	if _, err := metrics.Listen(address); err == nil || !strings.Contains(err.Error(), address) {
		t.Errorf("listening twice at %s: %v", address, err)
	}
}

// Numbers may be set while they are read.
func TestConcurrent(t *testing.T) {
	r := metrics.NewRegistry(metrics.Training)
	url := serve(t, r).URL()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 500 {
				if err := r.Add("scaffe_seconds_total", 1, "compute"); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 20 {
		get(t, url)
	}
	wg.Wait()
	if text := get(t, url); !regexp.MustCompile(`(?m)^scaffe_seconds_total{part="compute"} 2000$`).MatchString(text) {
		t.Errorf("2000 additions came to\n%s", text)
	}
}
