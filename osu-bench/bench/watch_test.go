package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/scaffe/scaffe/osu-bench/port"
)

// The samples are written however the command ends, whose status is kept; where there is nothing to sample it does not
// begin.
func TestWatched(t *testing.T) {
	dir := t.TempDir()
	counters, out, mark := filepath.Join(dir, "dev"), filepath.Join(dir, "new", "port.csv"), filepath.Join(dir, "ran")
	if err := os.WriteFile(counters, []byte("  eth0: 1 2 3 4 5 6 7 8 9 10\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	w := port.Watcher{File: counters, Interface: "eth0", Every: time.Millisecond, Rate: 1e9}
	for _, c := range []struct {
		script string
		status int
	}{{"true", 0}, {"exit 7", 7}, {"kill -KILL $$", 137}} {
		var log bytes.Buffer
		err := watched(t.Context(), &w, []string{"sh", "-c", c.script}, out, &log)
		var exit *exec.ExitError
		if errors.As(err, &exit) != (c.status != 0) || exit != nil && status(exit) != c.status {
			t.Errorf("%s: %v", c.script, err)
		}
		text, err := os.ReadFile(out)
		if err != nil || !strings.HasPrefix(string(text), "time_ms,unix_ms,length_ms,sent_bytes,received_bytes,sent_share,received_share,rate_bits\n") {
			t.Errorf("%s: %q, %v", c.script, text, err)
		}
		if !strings.Contains(log.String(), "eth0: ") || !strings.Contains(log.String(), "under 5 % of the rate") {
			t.Error(log.String())
		}
	}
	// A signal to the watch ends the command too.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := watched(ctx, &w, []string{"sleep", "1000"}, out, new(bytes.Buffer)); err == nil {
		t.Error("no error of a command that was ended")
	}
	w.Interface = "eth1"
	if err := watched(t.Context(), &w, []string{"touch", mark}, out, new(bytes.Buffer)); err == nil || !strings.Contains(err.Error(), "no interface eth1") {
		t.Error(err)
	}
	if _, err := os.Stat(mark); err == nil {
		t.Error("the command ran though there is nothing to sample")
	}
}
