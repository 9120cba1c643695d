package spec_test

import (
	"strings"
	"testing"

	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/schedule"
)

func TestParseSpec(t *testing.T) {
	for text, want := range map[string]string{
		"binomial":                           "binomial",
		"chain:8/binomial":                   "chain:8/binomial",
		"CB-8":                               "chain:8/binomial",
		"cc-4":                               "chain:4/chain",
		"chain:4,chunk=524288/chain:4/chain": "chain:4,chunk=512K/chain:4/chain",
		"linear:1/chain,chunk=1000":          "linear:1/chain,chunk=1000",
		"direct/chain":                       "direct/chain",
		"direct:node,chunk=2M/ring":          "direct,chunk=2M/ring",
		"chain:node/binomial":                "chain:node/binomial",
		"direct:4/chain":                     "direct:4/chain",
		"mpi":                                "mpi",
		"mpi,blocking":                       "mpi,blocking",
	} {
		s, err := spec.Parse(text)
		if err != nil || s.String() != want {
			t.Errorf("%q is read as %q (%v), not %q", text, s, err, want)
		}
	}
	for text, want := range map[string]string{
		"":                        "unknown algorithm",
		"tree":                    `unknown algorithm "tree": use one of binomial, chain, direct, doubling, halving, linear, mpi, ring`,
		"chain/binomial":          "level 0 (chain) needs a group size",
		"chain:8":                 "takes all ranks that are left and has no size",
		"chain:0/chain":           `group size "0"`,
		"chain:x/chain":           `group size "x"`,
		"chain,":                  `unknown option ""`,
		"chain,slots=3":           `unknown option "slots"`,
		"chain,chunk=0":           `chunk "0"`,
		"chain,chunk=12Q":         `chunk "12Q"`,
		"chain,chunk=1K,chunk=2K": "given twice",
		"CB-8/chain":              "unknown algorithm",
		"direct/mpi":              "stands alone",
		"mpi,chunk=4K":            "takes no size and no chunk",
		"mpi,slow":                `unknown option "slow" of mpi: the option is blocking`,
		"chain,blocking":          `unknown option "blocking" of chain`,
		"mpi,blocking/chain":      "stands alone",
		"ring:4/chain":            "ring is for allreduce, allgather and reduce_scatter at the last level",
		"chain/chain:node":        "level 0 (chain) needs a group size",
	} {
		if _, err := spec.Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q ended with %v, without %q", text, err, want)
		}
	}
}

// FuzzParseSpec: what is read is written and read back the same, and nothing
// panics, building a schedule included.
func FuzzParseSpec(f *testing.F) {
	for _, s := range []string{"binomial", "CB-8", "chain:4,chunk=512K/chain:4/chain", "chain:,", "chain,chunk=9999999999999G"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := spec.Parse(text)
		if err != nil {
			return
		}
		again, err := spec.Parse(s.String())
		if err != nil || again.String() != s.String() {
			t.Fatalf("%q is written as %q and read back as %q (%v)", text, s, again, err)
		}
		if _, err := spec.Build(spec.Call{Collective: schedule.Allreduce, Rank: 1, Size: 5, Count: 100, ElemSize: 4}, s); err != nil && !s.IsLibrary() {
			t.Fatalf("%q parses and does not build: %v", text, err)
		}
	})
}
