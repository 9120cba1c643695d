package binomial_test

import (
	"testing"

	"github.com/scaffe/scaffe/binomial"
	"github.com/scaffe/scaffe/schedule/check/checktest"
)

var family = checktest.Algorithm{Reduce: binomial.Reduce, Bcast: binomial.Bcast}

func TestConformance(t *testing.T) { checktest.Run(t, family) }

func TestTranscripts(t *testing.T) { checktest.Transcripts(t, "testdata", family) }
