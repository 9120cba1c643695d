package direct_test

import (
	"testing"

	"github.com/scaffe/scaffe/direct"
	"github.com/scaffe/scaffe/schedule/check/checktest"
)

var family = checktest.Algorithm{Reduce: direct.Reduce, Bcast: direct.Bcast, Allreduce: direct.Allreduce}

func TestConformance(t *testing.T) { checktest.Run(t, family) }

func TestTranscripts(t *testing.T) { checktest.Transcripts(t, "testdata", family) }
