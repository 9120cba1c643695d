package linear_test

import (
	"testing"

	"github.com/scaffe/scaffe/linear"
	"github.com/scaffe/scaffe/schedule/check/checktest"
)

var family = checktest.Algorithm{Reduce: linear.Reduce, Bcast: linear.Bcast}

func TestConformance(t *testing.T) { checktest.Run(t, family) }

func TestTranscripts(t *testing.T) { checktest.Transcripts(t, "testdata", family) }
