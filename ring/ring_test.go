package ring_test

import (
	"testing"

	"github.com/scaffe/scaffe/ring"
	"github.com/scaffe/scaffe/schedule/check/checktest"
)

var family = checktest.Algorithm{Allreduce: ring.Allreduce}

func TestConformance(t *testing.T) { checktest.Run(t, family) }

func TestTranscripts(t *testing.T) { checktest.Transcripts(t, "testdata", family) }
