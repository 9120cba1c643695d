package metrics_test

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"strings"

	"github.com/scaffe/scaffe/internal/metrics"
)

func Example() {
	s, err := metrics.Listen(":0") // this machine alone, any free port
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	t := metrics.NewTraining()
	s.Serve(t.Registry)
	t.Loss.Set(2.3)
	t.Snapshots.Inc()

	resp, err := http.Get(s.URL())
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		log.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "scaffe_loss ") || strings.HasPrefix(line, "scaffe_snapshots_total ") {
			fmt.Print(line)
		}
	}
	// Output:
	// scaffe_loss 2.3
	// scaffe_snapshots_total 1
}
