package main

import (
	"strings"
	"testing"
)

// TestLimits: more ranks than memory can hold are refused, at once and with the
// limit. (The command ran for minutes, and took gigabytes.)
func TestLimits(t *testing.T) {
	long(t)
	for want, args := range map[string][]string{
		"--ranks must be at most 4096 (got 100000000)": {"schedule", "--ranks", "100000000", "reduce", "binomial"},
		"more than 4194304 operations":                 {"schedule", "--ranks", "4000", "--size", "1G", "reduce", "chain,chunk=4K"},
		"--local must be at most 1024 (got 100000000)": {"explain", "--local", "100000000", "reduce", "64M"},
	} {
		r := command(t, t.TempDir(), scaffe, args...)
		if r.code == 0 || !strings.Contains(r.stderr, want) || !strings.Contains(r.stderr, "memory") {
			t.Errorf("scaffe %s ended with status %d and %q", strings.Join(args, " "), r.code, r.stderr)
		}
	}
}
