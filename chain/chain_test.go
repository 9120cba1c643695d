package chain_test

import (
	"testing"

	"github.com/scaffe/scaffe/chain"
	"github.com/scaffe/scaffe/schedule/check/checktest"
)

var family = checktest.Algorithm{Reduce: chain.Reduce, Bcast: chain.Bcast}

func TestConformance(t *testing.T) { checktest.Run(t, family) }

func TestTranscripts(t *testing.T) { checktest.Transcripts(t, "testdata", family) }
